"""A model server as what load is put on: what is asked, written once, and what its answers are held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from savedmodel_bakery.client.calls import ModelSpec, Predict, Question
from savedmodel_bakery.client.comparison import compare
from savedmodel_bakery.client.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
)
from savedmodel_bakery.client.flows import Conversation, follow
from savedmodel_bakery.client.images import read_classifications
from savedmodel_bakery.client.load.generator import Call, CallFailedError
from savedmodel_bakery.client.results import Prediction
from savedmodel_bakery.client.transports.transport import PreparedTransport
from savedmodel_bakery.wire.status import Code

_STATUSES: dict[type[ClientError], str] = {
    ConnectionFailedError: "no connection",
    DeadlineExceededError: "DEADLINE_EXCEEDED",
    InvalidResponseError: "no answer of the API",
}
WRONG = "wrong answer"


@dataclass(frozen=True)
class Exchange:
    """A question and what its answers have to be.

    Attributes:
        question: as the transport puts it.
        content: the first answer, as it came.
        expected: alias to array.
    """

    question: Predict
    content: bytes
    expected: Mapping[str, np.ndarray]


class Target:
    """Calls to one model, with a few questions in turn.

    Args:
        connect: opens a connection; each caller has its own.
        spec: the model.
        signature: name of the signature.
        atol: how far numbers with a fraction may be from those of the first answer; servers that batch round
            differently from call to call.
    """

    def __init__(
        self, connect: Callable[[], PreparedTransport], spec: ModelSpec, *, signature: str, atol: float
    ) -> None:
        self._connect = connect
        self._conversation = Conversation(spec)
        self._signature = signature
        self._atol = atol
        self._exchanges: list[Exchange] = []

    def learn(self, inputs: Mapping[str, Any], expected: Mapping[str, Any] | None = None) -> Prediction:
        """Take up a question by asking it once.

        Args:
            inputs: see `Client.predict`.
            expected: alias to what its answers hold; None is what this first one holds.

        Raises:
            ClientError: it was not answered.
        """
        asked: list[tuple[Question, bytes]] = []
        transport = self._connect()

        def ask(question: Question) -> Any:
            content = transport.prepare(question)()
            asked.append((question, content))
            return transport.decode(question, content)

        try:
            course = self._conversation.predict(inputs, signature=self._signature, output_filter=())
            prediction = follow(course, ask)
        finally:
            transport.close()
        question, content = asked[-1]
        assert isinstance(question, Predict)
        wanted = prediction.arrays if expected is None else _typed(expected, prediction.arrays)
        exchange = Exchange(question, content, wanted)
        self._check(exchange, prediction)
        self._exchanges.append(exchange)
        return prediction

    def learn_images(self, images: Mapping[str, Any], expected: Sequence[str] | None = None) -> None:
        """Take up a question about images; see `client.classification.encode_images`.

        Args:
            images: the inputs.
            expected: label of each; None is whatever the first answer says.

        Raises:
            ClientError: it was not answered, or an image can't be classified.
            CallFailedError: an image is not what was expected.
        """
        prediction = self.learn(images)
        answers = read_classifications(prediction, batch=len(images["image"]), top_k=None)
        for number, answer in enumerate(answers):
            if not answer.ok:
                raise RequestRefusedError(Code.INVALID_ARGUMENT, f"image {number}: {answer.error}")
            if expected is not None and answer.label != expected[number]:
                raise CallFailedError(WRONG, f'image {number} is "{answer.label}"; expected was "{expected[number]}"')

    @contextmanager
    def open_caller(self) -> Iterator[Call]:
        """What one caller calls by; call N puts question N, and after the last the first again."""
        transport = self._connect()
        puts = [transport.prepare(exchange.question) for exchange in self._exchanges]

        def call(number: int) -> None:
            place = number % len(puts)
            exchange = self._exchanges[place]
            try:
                content = puts[place]()
                if content != exchange.content:
                    self._check(exchange, transport.decode(exchange.question, content))
            except ClientError as exc:
                status = exc.code.name if isinstance(exc, RequestRefusedError) else _STATUSES[type(exc)]
                raise CallFailedError(status, str(exc)) from exc

        try:
            yield call
        finally:
            transport.close()

    def _check(self, exchange: Exchange, prediction: Prediction) -> None:
        differences = compare(exchange.expected, prediction.arrays, lambda _: self._atol)
        if differences:
            raise CallFailedError(WRONG, "; ".join(differences))


def _typed(expected: Mapping[str, Any], like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values from a file in the element types that the answer has, which JSON doesn't tell."""
    typed = {}
    for alias, value in expected.items():
        array = np.asarray(value)
        if alias in like and like[alias].dtype.kind == "O":
            array = np.array([item.encode() if isinstance(item, str) else item for item in array.ravel()], object)
            array = array.reshape(np.shape(value))
        elif alias in like:
            array = array.astype(like[alias].dtype)
        typed[alias] = array
    return typed
