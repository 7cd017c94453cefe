"""Everything that can go wrong between a question and its answer, as one tree.

    ClientError
    ├── ConnectionFailedError      no connection, or it was lost: nothing is known about the model
    ├── DeadlineExceededError      connected, but no answer in time
    ├── RequestRefusedError               the request was understood and declined, for a reason with a code
    └── InvalidResponseError         an answer came that is not the API's, or not what the signature promises

Wrong arguments of the library itself are ValueError and TypeError; an image file that can't be read is an
OSError.
Must not know numpy, protobuf or a network.
"""

from __future__ import annotations

from savedmodel_bakery.wire.status import Code


class ClientError(Exception):
    """Base of all errors that an ask may raise; its text is one sentence meant for people."""


class ConnectionFailedError(ClientError):
    """No connection to the server could be made, or it was lost before the answer."""


class DeadlineExceededError(ClientError):
    """The server took longer than it was given, by this client or by its own settings."""


class RequestRefusedError(ClientError):
    """The request was declined, with the server's own words.

    What can't be sent at all (an element type that JSON doesn't carry) is refused so before it leaves.

    Attributes:
        code: canonical status code; over REST it is worked out from the HTTP status, which tells fewer apart.
        message: why.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}" if self.message else self.code.name


class InvalidResponseError(ClientError):
    """What came back is not an answer of the TensorFlow Serving API, or doesn't fit the signature."""
