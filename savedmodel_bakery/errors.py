"""The errors that a call or a bake may raise, and their texts. Must not import numpy, protobuf or a network library.

    ClientError
    ├── ConnectionFailedError     cannot connect, or the connection was lost before the response arrived
    │   └── TlsHandshakeError     a certificate is not valid, or the server does not use TLS
    ├── DeadlineExceededError     connected, but no response in time
    ├── RequestRefusedError       the server understood the request and refused it, with a status code
    │   └── AccessDeniedError     the model server requires another token
    └── InvalidResponseError      the response is not one of the API, or does not match the signature

    BakeError                     baking failed; nothing was published
    ├── RecipeError, LabelError, SourceError, PipelineError, TritonError    of what is to be baked
    ├── VerificationError, ParityError                                      of its outputs
    └── PublishError                                                        of its folder

Invalid arguments to the library raise ValueError or TypeError; an image file that cannot be read raises OSError.
"""

from __future__ import annotations

import re
import reprlib
from contextvars import ContextVar

from savedmodel_bakery.log import escape
from savedmodel_bakery.wire.status import Code

names_options: ContextVar[bool] = ContextVar("names_options", default=False)
"""Whether the errors of a bake name options of the command line rather than arguments."""

_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?:(?<=recipe) file)?")
_RENAMED = {"no-parity": "require_parity=False", "parity-atol": "atol", "parity-share": "share"}


def _argument(option: re.Match[str]) -> str:
    """Return the argument of `bake`, or the field of a recipe, that an option of the command line sets."""
    return _RENAMED.get(option[1], option[1].replace("-", "_"))


class ClientError(Exception):
    """Base class of all errors that a call may raise. Its text is one sentence for people."""


class ConnectionFailedError(ClientError):
    """The connection to the server could not be made, or was lost before the response arrived."""


class TlsHandshakeError(ConnectionFailedError):
    """The server's certificate is not valid, the server rejects the client's, or it does not use TLS."""


class DeadlineExceededError(ClientError):
    """The server took longer than the time limit of this client, or than its own."""


class RequestRefusedError(ClientError):
    """The server refused the request; the message is the server's.

    Also raised before anything is sent, for a request that cannot be sent, such as an element type that JSON lacks.

    Attributes:
        code: canonical status code. Over REST it is derived from the HTTP status, which distinguishes fewer codes.
        message: the reason.
        retry_after_s: time in seconds after which an overloaded server allows another attempt, `math.inf` if it allows
            none, or None if it does not say.
    """

    def __init__(self, code: Code, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}" if self.message else self.code.name


class AccessDeniedError(RequestRefusedError):
    """The model server requires a valid token (UNAUTHENTICATED), or one that allows the call (PERMISSION_DENIED)."""


class InvalidResponseError(ClientError):
    """The response is not one of the API, or does not match the signature."""


class BakeError(Exception):
    """Baking failed; nothing was published.

    Args:
        message: joined to one line, because messages of other libraries that it quotes may have several. It names
            options of the command line, such as `--parity-html`, which become arguments and fields of Python,
            `parity_html`, unless `names_options` is set.
    """

    def __init__(self, message: str) -> None:
        text = " ".join(message.split())
        super().__init__(text if names_options.get() else _OPTION.sub(_argument, text))


class RecipeError(BakeError):
    """An option of the recipe is missing, contradictory or out of range."""


class LabelError(BakeError):
    """The label set can't be read, or doesn't fit the network."""


class SourceError(BakeError):
    """The model can't be loaded or used."""


class VerificationError(BakeError):
    """The SavedModel's outputs differ from the network's."""


class ParityError(BakeError):
    """The SavedModel's outputs differ from the reference pipeline's, or can't be compared."""


class EvidenceError(BakeError):
    """Evidence of the training can't be read, or contradicts the recipe."""


class PipelineError(BakeError):
    """A pipeline file is invalid, or its steps do not fit together."""


class TritonError(BakeError):
    """A SavedModel or a pipeline can't run on Triton as it is."""


class PublishError(BakeError):
    """A version can't be published or read."""


_QUOTING = reprlib.Repr()
_QUOTING.maxstring = _QUOTING.maxlong = _QUOTING.maxother = 200


def quote(value: object) -> str:
    """Return a value as messages show it: as Python writes it, without the middle of long ones."""
    return _QUOTING.repr(value)


def one_line(message: str) -> str:
    """Return a message on one line, without the line breaks of servers; control characters become escapes."""
    return escape(" ".join(message.split()))


def image_error(message: str) -> str:
    """Return what a baked servable says about a bad image, without TensorFlow's text about the failed assertion."""
    return re.sub(r"assertion failed: \[(.*?)\]\s+\[\[.*", r"\1", message, flags=re.DOTALL)
