"""The server's configuration files, which are text protobufs: models to serve, and batching parameters.

Defaults, checks and errors are tensorflow_model_server's. Models may also be set by two flags. Model roots are the
folders and URLs that models may be loaded from, set by `--allowed_model_roots`; without any, every path is allowed.
Folders are absolute paths, may be symbolic links, and need not exist yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from savedmodel_bakery.files import read_small
from savedmodel_bakery.storage.store import is_url
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.model_config import PLATFORM, ModelConfig, check_base_path, parse_config, platform_of
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_MAX_REASON = 1000  # characters of the parser's message, which quotes a line of the file
_CODES = {PermissionError: Code.PERMISSION_DENIED, IsADirectoryError: Code.FAILED_PRECONDITION}

FILE_IN_VERSION = "batching_params.pbtxt"
"""File name of a version's own parameters, read with `--enable_per_model_batching_parameters`."""

_MAX_VALUE = 2**31 - 1
_MAX_THREADS = 2**16  # the same limit as for the flags that set threads


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


@dataclass(frozen=True)
class BatchingParameters:
    """When a batch is full, and how long it may wait for more requests."""

    max_batch_size: int = 1000  # maximum rows in a batch, and in a request
    batch_timeout_micros: int = 0  # how long a batch that isn't full waits for more requests, in microseconds
    max_enqueued_batches: int = 10  # maximum batches waiting in the queue of one combination of inputs and outputs
    num_batch_threads: int = 0  # maximum batches running at the same time; 0 means one per CPU
    thread_pool_name: str = ""  # label of the batching metrics
    allowed_batch_sizes: tuple[int, ...] = ()  # row counts that batches are padded to; empty means any number
    # whether tensors are padded to the largest in their batch in every dimension
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False  # whether a request may be split over several batches
    max_execution_batch_size: int = 0  # maximum rows in a batch when requests are split; 0 means `max_batch_size`

    def __post_init__(self) -> None:
        # Defaults that depend on the machine or on other parameters.
        if not self.num_batch_threads:
            object.__setattr__(self, "num_batch_threads", os.cpu_count() or 1)
        if not (self.enable_large_batch_splitting and self.max_execution_batch_size):
            object.__setattr__(self, "max_execution_batch_size", self.max_batch_size)


def read_batching_parameters(path: Path) -> BatchingParameters:
    """Read a text BatchingParameters file; fields that aren't set get their defaults. Does not `check_sizes`."""
    message = read_message(path, schema.BatchingParameters)
    fields: dict[str, Any] = {
        field.name: value if field.is_repeated or field.message_type is None else value.value
        for field, value in message.ListFields()
    }
    for name, minimum, maximum in (
        ("num_batch_threads", 1, _MAX_THREADS),
        ("max_batch_size", 1, _MAX_VALUE),
        ("max_execution_batch_size", 1, _MAX_VALUE),
        ("batch_timeout_micros", 0, _MAX_VALUE),
        ("max_enqueued_batches", 0, _MAX_VALUE),
    ):
        if name in fields and fields[name] < minimum:
            raise invalid_argument(f"{name} must be {'positive' if minimum else 'non-negative'}; was {fields[name]}")
        if name in fields and fields[name] > maximum:
            raise invalid_argument(f"invalid {name} {fields[name]}: must be at most {maximum}")
    fields["allowed_batch_sizes"] = tuple(fields.get("allowed_batch_sizes", ()))
    return BatchingParameters(**fields)


def check_sizes(parameters: BatchingParameters) -> None:
    """Reject sizes that contradict each other, as the real server does when it loads a model, and in its words."""
    sizes, largest = parameters.allowed_batch_sizes, parameters.max_execution_batch_size
    if largest > parameters.max_batch_size:
        raise invalid_argument(
            f"max_execution_batch_size must not exceed max_batch_size; was {largest}, with {parameters.max_batch_size}"
        )
    if sizes and sizes[-1] != largest:
        name = "max_execution_batch_size" if parameters.enable_large_batch_splitting else "max_batch_size"
        raise invalid_argument(
            f"Last entry in allowed_batch_sizes must match {name}; last entry was {sizes[-1]}; expected {largest}"
        )
    if any(left >= right for left, right in pairwise((0, *sizes))):
        raise invalid_argument(
            "allowed_batch_sizes entries must be positive and monotonically increasing; were "
            + ", ".join(map(str, sizes))
        )


class UnavailableVersionError(StatusError):
    """A label names a version that is not available; tensorflow_model_server's text does not say what to do."""

    hint = (
        "A label can only be assigned to an available version, and no version is available when the server starts: "
        "assign it in a later reload, or set --allow_version_labels_for_unavailable_models."
    )


def single_model(name: str, base_path: str) -> dict[str, ModelConfig]:
    """Return the configuration set by `--model_name` and `--model_base_path`, which must be absolute."""
    check_base_path(name, base_path)
    return {name: ModelConfig(name, base_path)}


def read_config_file(path: Path) -> dict[str, ModelConfig] | None:
    """Read a text ModelServerConfig file; see `parse_config`."""
    return parse_config(read_message(path, schema.ModelServerConfig))


def check_models(
    models: Mapping[str, ModelConfig],
    current: Mapping[str, ModelConfig],
    available: Callable[[str], Collection[int]],
    *,
    labels_for_unavailable: bool,
) -> None:
    """Check whether a configuration may replace the current one, in tensorflow_model_server's order."""
    for name, config in models.items():
        if name in current and (platform := platform_of(config)) != PLATFORM:
            raise invalid_argument(
                f"Illegal to change a model's platform. For model {name} platform was {PLATFORM} and new platform "
                f"requested is {platform}"
            )
    for name, config in models.items():
        current_labels = current[name].labels if name in current else {}
        for label, version in config.labels.items():
            may_be_unavailable = labels_for_unavailable and current_labels.get(label, version) == version
            if version not in available(name) and not may_be_unavailable:
                raise UnavailableVersionError(
                    Code.FAILED_PRECONDITION,
                    f"Request to assign label to version {version} of model {name}, which is not currently "
                    "available for inference",
                )
    for name, config in models.items():
        if (platform := platform_of(config)) != PLATFORM:
            raise invalid_argument(f"Model {name} requests unsupported platform {platform}")


class OutsideRootsError(StatusError):
    """A path leads out of the allowed folders; loading from it is not retried."""


def default_cache_folder() -> Path:
    """Return the folder for copies of versions in buckets, in the user's cache: nobody else can write there."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - a user may lack a home
    return Path(cache, "savedmodel-bakery", "models")


def parse_model_roots(text: str) -> tuple[Path | str, ...]:
    """Parse comma-separated absolute folders and URLs, which stay strings; an empty text allows every path."""
    roots = tuple(root if is_url(root) else Path(root) for root in text.split(",")) if text else ()
    for root in roots:
        if isinstance(root, Path) and not root.is_absolute():
            raise invalid_argument(f"invalid allowed_model_roots {text}: each folder must be an absolute path")
    return roots


def check_base_paths(models: Mapping[str, ModelConfig], roots: Sequence[Path | str]) -> None:
    """Check the base paths of a configuration; see `check_path`. A URL must begin with one of `roots`."""
    for name, config in models.items():
        title = f"base path of model {name}"
        if not config.is_url:
            check_path(config.folder, roots, title)
        elif roots and not any(_is_below(config.base_path, root) for root in roots if isinstance(root, str)):
            raise _outside(f"{title}: {config.base_path}", roots)


def _is_below(url: str, root: str) -> bool:
    return f"{url}/".startswith(f"{root.rstrip('/')}/") and ".." not in url.split("/")


def check_path(path: Path, roots: Sequence[Path | str], title: str) -> None:
    """Check that a path, which need not exist, is below an allowed folder once its symbolic links are resolved."""
    if not roots:
        return
    try:
        target = Path(os.path.realpath(path))
    except ValueError:  # a NUL character: such a path can't exist
        return
    if any(target.is_relative_to(os.path.realpath(root)) for root in roots if isinstance(root, Path)):
        return
    link = "" if target == path else f" leads to {target}, which"
    raise _outside(f"{title}: {path}{link}", roots)


def _outside(subject: str, roots: Sequence[Path | str]) -> OutsideRootsError:
    allowed = ", ".join(map(str, roots))
    return OutsideRootsError(
        Code.PERMISSION_DENIED, f"{subject} is not below an allowed folder: {allowed} (--allowed_model_roots)"
    )
