"""The calls that a client can send, as values that every transport accepts, and how flows send them. Does no I/O.

A flow is an exchange with a server that is written once, for synchronous and asynchronous callers: a generator, as
httpx's `auth_flow`. It yields requests, is sent their responses (or thrown the ClientError that a request raised), and
returns a result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from savedmodel_bakery.errors import ClientError, InvalidResponseError
from savedmodel_bakery.wire.status import Code

if TYPE_CHECKING:
    import numpy as np

    from savedmodel_bakery.answers.signatures import Signature
    from savedmodel_bakery.wire.examples import Example

Request = TypeVar("Request")
Result = TypeVar("Result")

_MAX_VERSION = 2**63 - 1


@dataclass(frozen=True)
class ModelSpec:
    """The model of a call: its name, and a version number (0 or more) or a version label. The default is the newest."""

    name: str
    version: int | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.label is not None:
            raise ValueError(f'version {self.version} and label "{self.label}" exclude each other: pass one of them')
        if self.version is not None and not 0 <= self.version <= _MAX_VERSION:
            raise ValueError(f"invalid version {self.version}: must be between 0 and {_MAX_VERSION}")
        if not self.name or self.label == "":
            raise ValueError("the model name and the version label must not be empty")
        # Raises UnicodeEncodeError, a ValueError, for the surrogates of a command line that is not UTF-8.
        f"{self.name}{self.label}".encode()

    def override(self, *, model: str | None, version: int | None, label: str | None) -> ModelSpec:
        """Return the spec for a call. If it names any of these, this spec's own version and label do not apply."""
        if model is None and version is None and label is None:
            return self
        return ModelSpec(self.name if model is None else model, version, label)


@dataclass(frozen=True)
class Predict:
    """Run a signature on arrays, by alias; the result is a Prediction."""

    spec: ModelSpec
    signature: str
    inputs: Mapping[str, np.ndarray]
    output_filter: Sequence[str]
    declared: Signature | None  # from the model's metadata; None if the server does not offer any


@dataclass(frozen=True)
class Classify:
    """Run a Classify signature on examples; the result has a list of (label, score) for each."""

    spec: ModelSpec
    signature: str
    examples: Sequence[Example]


@dataclass(frozen=True)
class Regress:
    """Run a Regress signature on examples; the result has a number for each."""

    spec: ModelSpec
    signature: str
    examples: Sequence[Example]


@dataclass(frozen=True)
class Metadata:
    """Get the model's signatures; the result is GetModelMetadataResponse as protobuf JSON, as the REST API sends it."""

    spec: ModelSpec


@dataclass(frozen=True)
class Status:
    """Get the state of the model's versions; the result is a list of VersionStatus."""

    spec: ModelSpec


@dataclass(frozen=True)
class FindModel:
    """Find the model of a client that names none; the result is its name. Clients run it, not transports."""

    run: Callable[[], str]


Call = Predict | Classify | Regress | Metadata | Status


@dataclass(frozen=True)
class VersionStatus:
    """The state of one version of a model.

    Attributes:
        version: version number; None if a server of the v2 protocol does not number versions.
        state: START, LOADING, AVAILABLE, UNLOADING or END.
        code: OK, or why the version could not be loaded; over v2 always UNKNOWN.
        message: the error message; empty if `code` is OK.
    """

    version: int | None
    state: str
    code: Code
    message: str


def read_status(document: Mapping[str, Any]) -> list[VersionStatus]:
    """Read GetModelStatusResponse from its protobuf JSON, in the server's order."""
    try:
        return [
            VersionStatus(
                version=int(row["version"]),
                state=str(row["state"]),
                code=Code[row["status"]["error_code"]],
                message=str(row["status"]["error_message"]),
            )
            for row in document["model_version_status"]
        ]
    except (KeyError, TypeError, ValueError) as exc:
        raise InvalidResponseError(f"the status is not a valid GetModelStatusResponse: {exc!r}") from exc


def run_flow(flow: Generator[Request, Any, Result], send: Callable[[Request], Any]) -> Result:
    """Send a flow's requests one after the other and return its result."""
    try:
        request = next(flow)
        while True:
            try:
                response = send(request)
            except ClientError as exc:
                request = flow.throw(exc)
            else:
                request = flow.send(response)
    except StopIteration as end:
        result: Result = end.value
        return result


def first_cause(error: ClientError) -> BaseException | None:
    """Return the exception that an error began with, without traceback and causes of its own; None if there is none.

    Libraries raise several in turn, whose tracebacks hide the error. An exception may be among its own causes.
    """
    cause: BaseException = error
    seen = {id(cause)}
    while following := cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__):
        if id(following) in seen:
            break
        seen.add(id(following))
        cause = following
    return None if cause is error else cause.with_traceback(None)


async def run_flow_async(flow: Generator[Request, Any, Result], send: Callable[[Request], Awaitable[Any]]) -> Result:
    """Do the same as `run_flow` without blocking the event loop."""
    try:
        request = next(flow)
        while True:
            try:
                response = await send(request)
            except ClientError as exc:
                request = flow.throw(exc)
            else:
                request = flow.send(response)
    except StopIteration as end:
        result: Result = end.value
        return result
