"""Text protobuf files, as tensorflow_model_server reads and refuses them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_CODES = {PermissionError: Code.PERMISSION_DENIED, IsADirectoryError: Code.FAILED_PRECONDITION}


class TextFormatError(StatusError):
    """A file is no text protobuf.

    Attributes:
        reason: protobuf's own line for stderr.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(Code.INVALID_ARGUMENT, f"Invalid protobuf file: '{path}'")
        self.reason = reason


def read(path: Path, message_class: Any) -> Any:
    """The message that a file holds.

    Raises:
        TextFormatError: it doesn't parse.
        StatusError: it is missing, may not be read, is a folder, or has zero bytes.
    """
    name = message_class.DESCRIPTOR.full_name
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StatusError(_CODES.get(type(error), Code.NOT_FOUND), f"{path}; {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TextFormatError(path, f"Error parsing text-format {name}: {path} is no UTF-8") from error
    if not text:
        raise invalid_argument(f"{path}; Invalid argument")
    message = message_class()
    try:
        text_format.Parse(text, message, descriptor_pool=schema.POOL)
    except text_format.ParseError as error:
        reason = re.sub(r"^(\d+:\d+) : ", r"\1: ", str(error))
        raise TextFormatError(path, f"Error parsing text-format {name}: {reason}") from error
    return message
