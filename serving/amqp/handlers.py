"""Messages to responses, several at a time. Knows no broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.parsing import parsing
from savedmodel_bakery.serving.amqp import batching, codec
from savedmodel_bakery.serving.amqp.backends import Backend
from savedmodel_bakery.serving.amqp.codec import Call, Message, Response, UndecodableError, encode_failure, is_temporary
from savedmodel_bakery.serving.inference.predict import SignatureNotFoundError, input_dtypes
from savedmodel_bakery.serving.telemetry.requests import report_exception
from savedmodel_bakery.wire import amqp, schema
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.messages import SIGNATURE_FIELD, ModelSpec, write_spec
from savedmodel_bakery.wire.status import Code, StatusError

Value = TypeVar("Value")

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
        calls = [_attempt("decoding a message", self._decode, message) for message in messages]
        joined = self._run_joined(calls) if len(calls) > 1 else {}
        results = [joined[index] if index in joined else self._run(call) for index, call in enumerate(calls)]
        return [_encode(*item) for item in zip(messages, calls, results, strict=True)]

    def check(self) -> StatusError | None:
        """See Backend."""
        return self._backend.check()

    def _decode(self, message: Message) -> Call:
        with closing(self._limits.context()) as context, parsing(context) as limits:
            read_dtypes = partial(self._input_dtypes, context=context)
            return codec.decode(message, read_dtypes, self._model_name, limits, context.charge)

    def _input_dtypes(self, spec: ModelSpec, context: RequestContext) -> Mapping[str, DType]:
        """Return the element types of a signature's inputs, by alias; see `inference.predict.input_dtypes`."""
        request = schema.GetModelMetadataRequest(metadata_field=[SIGNATURE_FIELD])
        try:
            write_spec(request.model_spec, spec)
        except UnicodeEncodeError:  # no signature has such a name
            raise SignatureNotFoundError(spec.signature_name) from None
        content = self._backend.call("GetModelMetadata", request.SerializeToString(), context)
        metadata = schema.GetModelMetadataResponse.FromString(content).metadata[SIGNATURE_FIELD]
        signatures = schema.SignatureDefMap.FromString(metadata.value).signature_def
        return input_dtypes(signatures, spec.signature_name)

    def _run(self, call: Call | StatusError) -> bytes | StatusError:
        """Return the serialized response of one call, or its error."""
        if isinstance(call, StatusError):
            return call
        return _attempt(call.method, self._send, call.method, call.content)

    def _send(self, method: str, content: bytes) -> bytes:
        with closing(self._limits.context()) as context:
            return self._backend.call(method, content, context)

    def _run_joined(self, calls: Sequence[Call | StatusError]) -> dict[int, bytes | StatusError]:
        """Return the results, by index in `calls`, of the calls that could be joined with others."""
        results: dict[int, bytes | StatusError] = {}
        predicts = {
            index: call.content
            for index, call in enumerate(calls)
            if isinstance(call, Call) and call.method == "Predict"
        }
        for group in batching.group(predicts):
            responses = _attempt("a joined Predict", self._send_joined, list(group.values()))
            if not isinstance(responses, StatusError):
                results.update(zip(group, responses, strict=True))
            elif is_temporary(responses):
                results.update(dict.fromkeys(group, responses))
            else:
                logger.debug("making %d joined calls separately: %s", len(group), responses)
        return results

    def _send_joined(self, requests: Sequence[batching.JoinableRequest]) -> list[bytes]:
        return batching.split(self._send("Predict", batching.join(requests)), requests)


def _encode(message: Message, call: Call | StatusError, result: bytes | StatusError) -> Response:
    """Encode the result of a call, or its error, in the format of its message."""
    response: Response | StatusError
    if isinstance(call, StatusError):
        response = call
    elif isinstance(result, StatusError):
        response = result
    else:
        response = _attempt("encoding a response", call.encode, result)
    if isinstance(response, Response):
        if len(response.body) <= amqp.MAX_MESSAGE_BYTES:
            return response
        response = StatusError(
            Code.RESOURCE_EXHAUSTED,
            f"the response has {len(response.body)} bytes; a RabbitMQ message may have at most "
            f"{amqp.MAX_MESSAGE_BYTES}",
        )
    return encode_failure(response, message.content_type, dead_letter=isinstance(response, UndecodableError))


def _attempt(operation: str, function: Callable[..., Value], *arguments: Any) -> Value | StatusError:
    """Return the function's result, or the error to send to the caller."""
    try:
        return function(*arguments)
    except StatusError as error:
        return error
    except Exception:
        return report_exception(logger, operation)
