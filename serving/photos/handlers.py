"""The URLs of photos: find the model, run it on the photos, write the results. No sockets."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from savedmodel_bakery.errors import ClientError
from savedmodel_bakery.serving.access.required_roles import PHOTOS
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.methods import PREFLIGHT, Route
from savedmodel_bakery.serving.http.error_responses import error_response, method_not_allowed
from savedmodel_bakery.serving.http.messages import NOSNIFF, Request, Response, decode_name
from savedmodel_bakery.serving.inference.photos import PhotoModel
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, read_version
from savedmodel_bakery.serving.photos.codec import read_photos, results_response
from savedmodel_bakery.wire.json.predict_response import response_size
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_URL = re.compile(PHOTOS + r"(?P<model>[^/:]+)(?:/versions/(?P<version>[^/:]+)|/labels/(?P<label>[^/:]+))?")


class Handlers:
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
        return PREFLIGHT if request.method == "OPTIONS" else Route(_not_allowed, model_name, api=None)

    def _run(self, match: re.Match[str], request: Request, context: RequestContext) -> Response:
        name = decode_name(match["model"])
        context.check_model(name)
        label = decode_name(match["label"]) if match["label"] else None
        choice = ModelChoice(name, read_version(decode_name(match["version"])), label)
        photos = read_photos(request, context)
        with self._registry.acquire(choice) as servable:
            model = PhotoModel(servable)
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


def _not_allowed(request: Request, _context: RequestContext) -> Response:
    return method_not_allowed(request, ["POST"])
