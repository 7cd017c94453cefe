"""Messages to responses, several at a time. Knows no broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from savedmodel_bakery.serving import incident
from savedmodel_bakery.serving.admission.documents import parsing
from savedmodel_bakery.serving.amqp import batching, codec
from savedmodel_bakery.serving.amqp.backends import Backend
from savedmodel_bakery.serving.amqp.codec import Message, OtherCall, Predict, Prediction, Response, UndecodableError
from savedmodel_bakery.serving.amqp.errors import encode_failure, is_temporary, response_too_large
from savedmodel_bakery.serving.amqp.limits import CallLimits
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import StatusError

Value = TypeVar("Value")
_Call = Predict | OtherCall | StatusError

logger = logging.getLogger(__name__)


class Handlers:
    """Turns messages into responses.

    Args:
        backend: runs the calls.
        model_name: model of messages that name none.
        limits: of each call.
    """

    def __init__(self, backend: Backend, *, model_name: str, limits: CallLimits) -> None:
        self._backend = backend
        self._model_name = model_name
        self._limits = limits

    def handle(self, messages: Sequence[Message]) -> list[Response]:
        """Return one response per message, in their order; see `errors.is_temporary` for those to try again.

        Predict calls that fit together are joined into one call. If that call fails, each is called separately, so
        that one bad message affects no other.
        """
        calls: list[_Call] = [_attempt("decoding a message", self._decode, message) for message in messages]
        joined = self._predict_joined(calls) if len(calls) > 1 else {}
        results = [joined[index] if index in joined else self._run(call) for index, call in enumerate(calls)]
        return [_encode(*item) for item in zip(messages, calls, results, strict=True)]

    def check(self) -> StatusError | None:
        """See Backend."""
        return self._backend.check()

    def _decode(self, message: Message) -> Predict | OtherCall:
        with closing(self._limits.context()) as context, parsing(context) as limits:
            if amqp.media_type(message.content_type) != amqp.JSON:  # parsing is charged for JSON
                context.charge(len(message.body))
            input_dtypes = partial(self._backend.input_dtypes, context=context)
            return codec.decode(message, input_dtypes, self._model_name, limits, context.charge)

    def _run(self, call: _Call) -> Any:
        """Return the result of one call, or its error."""
        if isinstance(call, Predict):
            return _attempt("Predict", self._predict, call)
        if isinstance(call, OtherCall):
            return _attempt(call.method, self._call, call)
        return call

    def _predict(self, call: Predict) -> Prediction:
        with closing(self._limits.context()) as context:
            return self._backend.predict(call, context)

    def _call(self, call: OtherCall) -> bytes:
        with closing(self._limits.context()) as context:
            return self._backend.call(call, context)

    def _predict_joined(self, calls: Sequence[_Call]) -> dict[int, Prediction | StatusError]:
        """Return the results, by index in `calls`, of the calls that could be joined with others."""
        results: dict[int, Prediction | StatusError] = {}
        for group in batching.group({index: call for index, call in enumerate(calls) if isinstance(call, Predict)}):
            predictions = _attempt("a joined Predict", self._predict_group, list(group.values()))
            if not isinstance(predictions, StatusError):
                results.update(zip(group, predictions, strict=True))
            elif is_temporary(predictions):
                results.update(dict.fromkeys(group, predictions))
            else:
                logger.debug("making %d joined calls separately: %s", len(group), predictions)
        return results

    def _predict_group(self, calls: Sequence[Predict]) -> list[Prediction]:
        return batching.split(self._predict(batching.join(calls)), calls)


def _encode(message: Message, call: _Call, result: Any) -> Response:
    """Encode the result of a call, or its error, in the format of its message."""
    response: Response | StatusError = result
    if not isinstance(call, StatusError) and not isinstance(result, StatusError):
        response = _attempt("encoding a response", call.encode, result)
    if isinstance(response, Response):
        if len(response.body) <= amqp.MAX_MESSAGE_BYTES:
            return response
        response = response_too_large(len(response.body))
    return encode_failure(response, message.content_type, dead_letter=isinstance(response, UndecodableError))


def _attempt(operation: str, function: Callable[..., Value], *arguments: Any) -> Value | StatusError:
    """Return the function's result, or the error to send to the caller."""
    try:
        return function(*arguments)
    except StatusError as error:
        return error
    except Exception:
        return incident.report(logger, operation)
