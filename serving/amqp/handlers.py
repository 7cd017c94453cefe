"""Messages to answers, several at a time, without a socket."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence

from savedmodel_bakery.serving import incident
from savedmodel_bakery.serving.amqp import batching as joining
from savedmodel_bakery.serving.amqp import decoding as questions
from savedmodel_bakery.serving.amqp.backends import Backend
from savedmodel_bakery.serving.amqp.decoding import Message, Question, UndecodableError
from savedmodel_bakery.serving.amqp.errors import Response, error_response, response_too_large
from savedmodel_bakery.wire.status import Code, StatusError

logger = logging.getLogger(__name__)


class Handlers:
    """Answers messages.

    Args:
        backend: what answers calls.
        model: whom a message asks that names none.
    """

    def __init__(self, backend: Backend, *, model: str) -> None:
        self._backend = backend
        self._model = model

    def handle(self, messages: Sequence[Message]) -> list[Response]:
        """An answer for each, whatever is wrong with it; UNAVAILABLE for one that may be answered later.

        Of messages that come together, Predict requests that fit are joined into one call. Where that fails, each is
        asked on its own, so that none pays for another.
        """
        answers: dict[int, Response] = {}
        groups: dict[Hashable, list[tuple[int, Question]]] = {}
        for place, message in enumerate(messages):
            question = self._read(message)
            if isinstance(question, StatusError):
                answers[place] = _refuse(question, message)
                continue
            key = _key_of(question) if len(messages) > 1 else None
            groups.setdefault(place if key is None else key, []).append((place, question))
        for members in groups.values():
            responses = self._call_joined([question for _, question in members])
            for (place, question), response in zip(members, responses, strict=True):
                answers[place] = _spell(question, response, messages[place])
        return [answers[place] for place in range(len(messages))]

    def _read(self, message: Message) -> Question | StatusError:
        try:
            return questions.read(message, self._backend, model=self._model)
        except StatusError as error:
            return error
        except Exception:
            return incident.report(logger, repr(message))

    def _call_joined(self, members: list[Question]) -> Sequence[bytes | StatusError]:
        """Responses, or what came instead."""
        requests = [member.predict for member in members if member.predict]
        if len(members) > 1:
            try:
                content = self._backend.call("Predict", joining.join(requests))
                return joining.split(content, [joining.count_rows(request) for request in requests])
            except StatusError as error:
                if error.code is Code.UNAVAILABLE:
                    return [error for _ in members]
                logger.debug("%d messages are asked one by one: %s", len(members), error)
            except Exception:
                incident.report(logger, f"{len(members)} messages together")
        return [self._call(member) for member in members]

    def _call(self, question: Question) -> bytes | StatusError:
        try:
            return self._backend.call(question.name, question.content)
        except StatusError as error:
            return error
        except Exception:
            return incident.report(logger, question.name)


def _key_of(question: Question) -> Hashable:
    """What it may be joined by; one that has no shapes is refused by whoever is asked it alone."""
    try:
        return joining.key_of(question.predict) if question.predict else None
    except StatusError:
        return None


def _spell(question: Question, response: bytes | StatusError, message: Message) -> Response:
    if isinstance(response, StatusError):
        return _refuse(response, message)
    try:
        answer = question.spell(response)
    except StatusError as error:
        return _refuse(error, message)
    except Exception:
        return _refuse(incident.report(logger, f"reading an answer to {question.name}"), message)
    why = response_too_large(answer)
    return _refuse(why, message) if why else answer


def _refuse(error: StatusError, message: Message) -> Response:
    return error_response(error, message.content_type, dead_letter=isinstance(error, UndecodableError))
