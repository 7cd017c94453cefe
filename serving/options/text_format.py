"""Reads text protobuf files; errors are worded as tensorflow_model_server words them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from savedmodel_bakery.files import read_small
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_MAX_REASON = 1000  # characters of the parser's message, which quotes a line of the file
_CODES = {PermissionError: Code.PERMISSION_DENIED, IsADirectoryError: Code.FAILED_PRECONDITION}


class TextFormatError(StatusError):
    """A file is not a valid text protobuf of the expected type; `reason` is the parser's message, for stderr."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(Code.INVALID_ARGUMENT, f"Invalid protobuf file: '{path}'")
        self.reason = reason


def read_message(path: Path, message_class: Any, *, has_secrets: bool = False) -> Any:
    """Parse a file as a message of the class; `has_secrets`: errors state the place of a mistake, but quote nothing."""
    name = message_class.DESCRIPTOR.full_name
    try:
        text = read_small(path).decode()
    except OSError as error:
        raise StatusError(_CODES.get(type(error), Code.NOT_FOUND), f"{path}; {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TextFormatError(path, f"Error parsing text-format {name}: {path} is not valid UTF-8") from error
    if not text:
        raise invalid_argument(f"{path}; Invalid argument")
    message = message_class()
    try:
        text_format.Parse(text, message, descriptor_pool=schema.POOL)
    except text_format.ParseError as error:
        reason = re.sub(r"^(\d+:\d+) : ", r"\1: ", str(error))
        if has_secrets:
            place = f"{error.GetLine()}:{error.GetColumn()}"
            reason = f'{place}: expected FIELD: "TEXT" on one line, with \\n for each line break'
        raise TextFormatError(path, f"Error parsing text-format {name}: {reason[:_MAX_REASON]}") from None
    return message
