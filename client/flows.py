"""What a caller wants, as a course of questions: one for every way of waiting for their answers.

A course is a generator. It yields questions, is sent their answers (or thrown the ClientError that came instead), and
returns what the caller is given. So `Client` and `AsyncClient` say the same things and differ in how they wait. Must
not know a transport.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from os import PathLike
from typing import Any, TypeVar

from savedmodel_bakery.client.calls import Classify, Metadata, ModelSpec, Predict, Question, Status
from savedmodel_bakery.client.errors import ClientError, InvalidResponseError, RequestRefusedError
from savedmodel_bakery.client.images import DEFAULT_SIGNATURE, encode_images, read_classifications, signature_for
from savedmodel_bakery.client.results import Classification, Prediction, VersionStatus
from savedmodel_bakery.client.signatures import Signature, Signatures, as_array, read_signatures
from savedmodel_bakery.wire import trees
from savedmodel_bakery.wire.features import Example, ScoredClass
from savedmodel_bakery.wire.status import Code

Result = TypeVar("Result")
Course = Generator[Question, Any, Result]

# What a server says to questions that were right for a version which has been replaced.
_STALE = (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.NOT_FOUND)


class Conversation:
    """Courses of questions about one model, or others on the same server; knows the signatures that it was told."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._known: dict[ModelSpec, Signatures] = {}

    def predict(
        self,
        inputs: Mapping[str, Any],
        *,
        signature: str,
        output_filter: Sequence[str],
        model: str | None = None,
        version: int | None = None,
        label: str | None = None,
    ) -> Course[Prediction]:
        """See `Client.predict`."""
        spec = self._spec.instead(model=model, version=version, label=label)
        name = signature or DEFAULT_SIGNATURE
        known = self._known.get(spec)
        told = known or (yield from self._fetch(spec))
        try:
            return (yield from self._predict(spec, told, inputs, name, output_filter))
        except (RequestRefusedError, InvalidResponseError) as exc:
            if known is None or (isinstance(exc, RequestRefusedError) and exc.code not in _STALE):
                raise
            told = yield from self._fetch(spec)
            if told == known:
                raise
        return (yield from self._predict(spec, told, inputs, name, output_filter))

    def unchecked(self, inputs: Mapping[str, Any], *, signature: str, output_filter: Sequence[str]) -> Predict:
        """A question about arrays, of a model whose metadata aren't known; see `Client.submit`."""
        return self._question(self._spec, None, inputs, signature or DEFAULT_SIGNATURE, output_filter)

    def classify_images(
        self, images: Sequence[bytes | str | PathLike[str]], *, signature: str, top_k: int | None
    ) -> Course[list[Classification]]:
        """See `Client.classify_images`."""
        signature = signature_for(signature, top_k)
        if isinstance(images, (str, bytes)):
            raise TypeError(f"images are one {type(images).__name__}; supported is a list of them")
        if not images:
            return []  # a batching server may keep a request of no rows waiting
        prediction = yield from self.predict(encode_images(images), signature=signature, output_filter=())
        return read_classifications(prediction, batch=len(images), top_k=top_k)

    def classify_examples(self, examples: Sequence[Example], *, signature: str) -> Course[list[list[ScoredClass]]]:
        """See `Client.classify_examples`."""
        found: list[list[ScoredClass]] = yield Classify(self._spec, signature, examples)
        return found

    def metadata(self) -> Course[dict[str, Any]]:
        """See `Client.metadata`."""
        document: dict[str, Any] = yield Metadata(self._spec)
        return document

    def status(self) -> Course[list[VersionStatus]]:
        """See `Client.status`."""
        found: list[VersionStatus] = yield Status(self._spec)
        return found

    def _fetch(self, spec: ModelSpec) -> Course[Signatures | None]:
        """The signatures as they are now; None where the server has no call for them."""
        self._known.pop(spec, None)
        try:
            document = yield Metadata(spec)
        except RequestRefusedError as exc:
            if exc.code is Code.UNIMPLEMENTED:
                return None
            raise
        self._known[spec] = read_signatures(document)
        return self._known[spec]

    def _predict(
        self,
        spec: ModelSpec,
        told: Signatures | None,
        inputs: Mapping[str, Any],
        name: str,
        output_filter: Sequence[str],
    ) -> Course[Prediction]:
        declared = told.find(name) if told else None
        prediction: Prediction = yield self._question(spec, declared, inputs, name, output_filter)
        known = self._known.get(spec)
        if known is not None and prediction.version not in (None, known.version):
            del self._known[spec]  # another version has come into force
        return prediction

    @staticmethod
    def _question(
        spec: ModelSpec, declared: Signature | None, inputs: Mapping[str, Any], name: str, output_filter: Sequence[str]
    ) -> Predict:
        if declared is None:
            arrays = {alias: as_array(alias, value, None) for alias, value in trees.flatten(inputs).items()}
        else:
            arrays = declared.fit(inputs)
        return Predict(spec, name, arrays, output_filter, declared)


def follow(course: Course[Result], ask: Callable[[Question], Any]) -> Result:
    """Put a course's questions, one after the other, and give what it comes to."""
    try:
        question = next(course)
        while True:
            try:
                answer = ask(question)
            except ClientError as exc:
                question = course.throw(exc)
            else:
                question = course.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


async def follow_async(course: Course[Result], ask: Callable[[Question], Awaitable[Any]]) -> Result:
    """The same, without standing in others' way meanwhile."""
    try:
        question = next(course)
        while True:
            try:
                answer = await ask(question)
            except ClientError as exc:
                question = course.throw(exc)
            else:
                question = course.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
