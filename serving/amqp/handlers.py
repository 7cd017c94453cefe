"""Messages to responses, several at a time. Knows no broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from savedmodel_bakery.serving.admission.budget import Cost, MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.parsing import parsing
from savedmodel_bakery.serving.amqp import batching, codec
from savedmodel_bakery.serving.amqp.backends import Backend
from savedmodel_bakery.serving.amqp.codec import Call, Message, Response, UndecodableError, encode_failure, is_temporary
from savedmodel_bakery.serving.inference import claims
from savedmodel_bakery.serving.telemetry.requests import report_exception
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.messages import Prediction, PredictRequest
from savedmodel_bakery.wire.status import Code, StatusError

Value = TypeVar("Value")
Result = bytes | Prediction
"""The serialized response to a serialized request, or the outputs of a Predict."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CallLimits:
    """Limits of each call."""

    timeout_s: float  # time limit
    memory: MemoryBudget | None = None  # of all calls together
    max_rows: int | None = None  # strings in one input, or examples

    def context(self) -> RequestContext:
        """Return the context of a new call; close it at the call's end."""
        return RequestContext(timeout_s=self.timeout_s, memory=self.memory, max_rows=self.max_rows)


def divide_memory(budget_bytes: int, *, prefetch: int, max_message_bytes: int) -> tuple[int, MemoryBudget]:
    """Divide the memory budget between delivered messages and calls. Call this after the model has been loaded.

    The broker delivers a number of messages, whatever their size, so the number is reduced, to 1 at least, until
    messages of the largest size fit into half of the budget. One more message comes from the retry queue. The calls get
    the rest.
    """
    total_bytes = MemoryBudget(budget_bytes).size
    reduced = max(1, min(prefetch, total_bytes // 2 // max_message_bytes - 1))
    if reduced < prefetch:
        logger.warning(
            "prefetching %d messages instead of %d, because messages of %d bytes (--max-message-bytes) must fit into "
            "half of %d bytes (--memory-budget-bytes)", reduced, prefetch, max_message_bytes, total_bytes,
        )  # fmt: skip
    return reduced, MemoryBudget(max(total_bytes - (reduced + 1) * max_message_bytes, total_bytes // 2))


class Handlers:
    """Turns messages into responses; `model_name` is the model of messages that name none."""

    def __init__(self, backend: Backend, *, model_name: str, limits: CallLimits) -> None:
        self._backend = backend
        self._model_name = model_name
        self._limits = limits

    def handle(self, messages: Sequence[Message]) -> list[Response]:
        """Return one response per message, in their order; see `codec.is_temporary` for those to try again.

        Predict calls that fit together are joined into one call. If that call fails, each is called separately, so
        that one bad message affects no other.
        """
        with ExitStack() as stack:  # keeps what messages were decoded to charged until the last one is answered
            calls = [_attempt("decoding a message", self._decode, message, stack) for message in messages]
            joined = self._run_joined(calls) if len(calls) > 1 else {}
            results = [joined[index] if index in joined else self._run(call) for index, call in enumerate(calls)]
            return [self._encode(*item) for item in zip(messages, calls, results, strict=True)]

    def check(self) -> StatusError | None:
        """See Backend."""
        return self._backend.check()

    def _decode(self, message: Message, stack: ExitStack) -> Call:
        context = stack.enter_context(closing(self._limits.context()))
        with parsing(context) as limits:
            signatures = partial(self._backend.signatures, context=context)
            call = codec.decode(message, signatures, self._model_name, limits, context.charge)
        context.settle(_size(call.request))
        return call

    def _run(self, call: Call | StatusError) -> Result | StatusError:
        """Return the result of one call, or its error."""
        return call if isinstance(call, StatusError) else _attempt(call.method, self._send, call.method, call.request)

    def _send(self, method: str, request: bytes | PredictRequest) -> Result:
        with closing(self._limits.context()) as context:
            if isinstance(request, bytes):
                return self._backend.call(method, request, context)
            context.charge(Cost.TENSOR * _size(request))
            return self._backend.predict(request, context)

    def _run_joined(self, calls: Sequence[Call | StatusError]) -> dict[int, Result | StatusError]:
        """Return the results, by index in `calls`, of the calls that could be joined with others."""
        results: dict[int, Result | StatusError] = {}
        predicts = {
            index: call.request
            for index, call in enumerate(calls)
            if isinstance(call, Call) and call.method == "Predict"
        }
        for group in batching.group(predicts):
            predictions = _attempt("a joined Predict", self._send_joined, list(group.values()))
            if not isinstance(predictions, StatusError):
                results.update(zip(group, predictions, strict=True))
            elif is_temporary(predictions):
                results.update(dict.fromkeys(group, predictions))
            else:
                logger.debug("making %d joined calls separately: %s", len(group), predictions)
        return results

    def _encode(self, message: Message, call: Call | StatusError, result: Result | StatusError) -> Response:
        """Encode the result of a call, or its error, in the format of its message."""
        response: Response | StatusError
        if isinstance(call, StatusError):
            response = call
        elif isinstance(result, StatusError):
            response = result
        else:
            with closing(self._limits.context()) as context:
                response = _attempt("encoding a response", call.encode, result, context.charge)
        if isinstance(response, Response):
            if len(response.body) <= amqp.MAX_MESSAGE_BYTES:
                return response
            response = StatusError(
                Code.RESOURCE_EXHAUSTED,
                f"the response has {len(response.body)} bytes; a RabbitMQ message may have at most "
                f"{amqp.MAX_MESSAGE_BYTES}",
            )
        return encode_failure(response, message.content_type, dead_letter=isinstance(response, UndecodableError))

    def _send_joined(self, requests: Sequence[PredictRequest]) -> list[Prediction]:
        prediction = self._send("Predict", batching.join(requests))
        assert isinstance(prediction, Prediction)
        return batching.split(prediction, requests)


def _size(request: bytes | PredictRequest) -> int:
    """Return the bytes of memory that a request takes beside the body of its message."""
    return 0 if isinstance(request, bytes) else sum(map(claims.size, request.inputs.values()))


def _attempt(operation: str, function: Callable[..., Value], *arguments: Any) -> Value | StatusError:
    """Return the function's result, or the error to send to the caller."""
    try:
        return function(*arguments)
    except StatusError as error:
        return error
    except Exception:
        return report_exception(logger, operation)
