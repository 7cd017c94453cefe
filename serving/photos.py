"""Photos as bodies of HTTP requests: runs a baked model on them and returns its results as JSON. Has no sockets."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from savedmodel_bakery.answers.other_inputs import SECOND_IMAGE, parse_value
from savedmodel_bakery.answers.signatures import TensorSpec
from savedmodel_bakery.errors import ClientError
from savedmodel_bakery.serving.access.access import PHOTOS
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.http import (
    NOSNIFF,
    PREFLIGHT,
    Request,
    Response,
    Route,
    decode_name,
    error_response,
    method_not_allowed,
)
from savedmodel_bakery.serving.inference.photos import PhotoModel
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, read_version
from savedmodel_bakery.wire.json.predict_response import response_size
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.v2.tensors import shown

_URL = re.compile(PHOTOS + r"(?P<model>[^/:]+)(?:/versions/(?P<version>[^/:]+)|/labels/(?P<label>[^/:]+))?")
_FORM = "multipart/form-data"
# Bytes become characters one by one: a name may be in any encoding, and only its quotation marks matter.
_NAMES = "latin-1"
# RFC 7578 forbids this parameter, but some clients send it alone, and the parser ignores it.
_EXTENDED_FILE_NAME = re.compile(r";\s*filename\*\s*=", re.IGNORECASE)


class PhotoHandlers:
    """All URLs below `/photos/`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def find(self, request: Request) -> Route | None:
        """Return where a request goes; see `FindRoute`."""
        match = _URL.fullmatch(request.path)
        if match is None:
            return None
        model_name = decode_name(match["model"])
        if request.method == "POST":
            return Route(partial(self._run, match), model_name, api="photos", runs_model=True, on_error=_error)
        if request.method == "OPTIONS":
            return PREFLIGHT
        return Route(partial(method_not_allowed, ["POST"]), model_name, api=None)

    def _run(self, match: re.Match[str], request: Request, context: RequestContext) -> Response:
        name = decode_name(match["model"])
        context.check_model(name)
        label = decode_name(match["label"]) if match["label"] else None
        choice = ModelChoice(name, read_version(decode_name(match["version"])), label)
        parts = read_parts(request, context)
        with self._registry.acquire(choice) as servable:
            model = PhotoModel(servable)
            photos = sort_parts(parts, model.others, context)
            outputs = model.run(photos, context)
        context.charge(response_size(outputs))
        prediction = model.prediction(outputs)
        try:
            [first, *others] = results = model.task.read(prediction, batch=len(photos))
        except ClientError as error:
            raise StatusError(Code.INTERNAL, str(error)) from error
        if not others and not first.ok:
            raise invalid_argument(f"the photo cannot be read: {first.error}")
        return results_response(
            {
                "model": prediction.model,
                "version": prediction.version,
                "task": model.task.name,
                "signature": model.signature,
                "results": [{"ok": result.ok, **model.task.document(result)} for result in results],
            }
        )


def _error(error: StatusError) -> Response:
    response = error_response(error)
    return replace(response, headers={**response.headers, **NOSNIFF})


class Part(NamedTuple):
    """A part of a form."""

    name: str
    is_file: bool
    content: bytes


def read_parts(request: Request, context: RequestContext) -> Iterable[Part]:
    """Return the parts of a request: those of a form (RFC 7578), or else the body as it is, which is a photo.

    A form is read as its parts are taken; then StatusError (INVALID_ARGUMENT) is raised if it is damaged. curl's
    `--data-binary` names the body a form of another type, so only `multipart/…` is taken as one.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise invalid_argument(f"invalid Content-Encoding {shown(encoding)}: photos must be sent uncompressed")
    media_type, options = parse_options_header(request.headers.get("content-type", ""))
    if media_type.startswith("multipart/"):
        if media_type != _FORM:
            raise invalid_argument(
                f"invalid Content-Type {shown(media_type)}: must be {_FORM} for a form, or any type that is not "
                "multipart for a single photo"
            )
        context.charge(len(request.body))
        return _read_form(request.body, options.get("boundary", ""))
    if not request.body:
        raise invalid_argument("the body is empty: it must be an image file, or a form with image files")
    return [Part("", True, request.body)]


def results_response(document: dict[str, Any]) -> Response:
    """Return a response with JSON; numbers that JSON lacks (NaN, infinity) are null, bytes are base64."""
    try:
        text = _dump(document)
    except ValueError:
        text = _dump(_without_unrepresentable(document))
    return Response(200, f"{text}\n".encode(), headers=NOSNIFF)


def sort_parts(
    parts: Iterable[Part], specs: Mapping[str, TensorSpec], context: RequestContext
) -> list[tuple[bytes, dict[str, Any]]]:
    """Return the photos of a form, each with its values of the inputs in `specs`, which are beside the photo.

    The fields of an input belong to the photos in their order. Raises StatusError (INVALID_ARGUMENT) for a field that
    is none, or whose value can't be read, and OverloadError for too many photos or fields of an input.
    """
    photos: list[bytes] = []
    values: dict[str, list[Any]] = {alias: [] for alias in specs}
    for part in parts:
        if part.name in specs and part.is_file == (part.name == SECOND_IMAGE):
            try:
                text = part.content if part.is_file else parse_value(part.name, part.content.decode(), specs[part.name])
            except ValueError as error:
                raise invalid_argument(str(error)) from error
            context.check_rows(len(values[part.name]) + 1)
            values[part.name].append(text)
        elif part.is_file:
            context.check_rows(len(photos) + 1)
            photos.append(part.content)
        else:
            inputs = f"; other fields are inputs of the model: {', '.join(specs)}" if specs else ""
            raise invalid_argument(
                f"the field {shown(part.name)} of the form is not a file: send photos as files, as curl does with "
                f"-F file=@photo.jpg{inputs}"
            )
    if not photos:
        raise invalid_argument("the form has no file")
    for alias, rows in values.items():
        if len(rows) != len(photos):
            raise invalid_argument(
                f'the form has {len(photos)} photos and {len(rows)} fields "{alias}": must have one for each photo'
            )
    return [(photo, {alias: rows[place] for alias, rows in values.items()}) for place, photo in enumerate(photos)]


def _read_form(body: bytes, boundary: str) -> Iterator[Part]:
    pieces: list[bytes] = []
    try:
        parser = PushMultipartParser(boundary, header_charset=_NAMES)
        # In pieces, because Python's lock is held while one is searched.
        for event in parser.parse_blocking(io.BytesIO(body).read):
            if isinstance(event, MultipartSegment):
                segment = event
            elif event is None:
                yield _part(segment, b"".join(pieces))
                pieces = []
            else:
                pieces.append(event)
    except MultipartError as error:
        raise invalid_argument(f"the body is not a valid {_FORM}: {error.args[0]}") from error


def _part(segment: MultipartSegment, content: bytes) -> Part:
    is_file = segment.filename is not None or bool(_EXTENDED_FILE_NAME.search(segment["Content-Disposition"]))
    return Part((segment.name or "").encode(_NAMES).decode(errors="replace"), is_file, content)


def _dump(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _without_unrepresentable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_unrepresentable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_unrepresentable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
