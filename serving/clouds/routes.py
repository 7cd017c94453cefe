"""The health route and the predict route, by which managed clouds call a container. Has no sockets.

Both stand for URLs of the server's own APIs: health for that of the v2 protocol, predict for `:predict` and `/photos`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import NoReturn
from urllib.parse import quote

from savedmodel_bakery.serving.access.access import PHOTOS, READY_PATH
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.http import FindRoute, Request, Route
from savedmodel_bakery.serving.models.registry import read_version
from savedmodel_bakery.wire.status import StatusError, invalid_argument
from savedmodel_bakery.wire.v2.tensors import shown

ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"
"""The header with which callers of SageMaker choose a model, as AWS's container for TensorFlow Serving reads it."""

_ATTRIBUTE = re.compile(r"(?<![a-z-])(tfs-[a-z-]+)=([^,]+)")  # linear: a name that has no value is read once
_METHODS = ("predict", "classify", "regress")
_PHOTO_TYPES = ("image/", "application/x-image", "multipart/")


class CloudRoutes:
    """The two routes.

    Args:
        health_route: path that answers 200 while every model is AVAILABLE; empty for none.
        predict_route: path that runs a model; empty for none.
        model_name: the model of requests that name none.
        apis: the APIs that have the URLs that the routes stand for.
    """

    def __init__(self, health_route: str, predict_route: str, *, model_name: str, apis: Sequence[FindRoute]) -> None:
        self._health_route = health_route or None
        self._predict_route = predict_route or None
        self._model_name = model_name
        self._apis = apis

    def find(self, request: Request) -> Route | None:
        """Return where a request goes; see `FindRoute`."""
        if request.path == self._health_route:
            target = READY_PATH
        elif request.path == self._predict_route:
            try:
                target = _predict_target(request, self._model_name)
            except StatusError as error:
                return Route(partial(_refuse, error))
        else:
            return None
        meant = Request(request.method, target, request.headers)
        return next((route for find in self._apis if (route := find(meant))), None)


def _predict_target(request: Request, model_name: str) -> str:
    """Return the URL that a request means, by its Content-Type and SageMaker's attributes."""
    attributes = dict(_ATTRIBUTE.findall(request.headers.get(ATTRIBUTES, "")))
    name = quote(attributes.get("tfs-model-name", model_name), safe="")
    version = attributes.get("tfs-model-version", "")
    read_version(version)
    method = attributes.get("tfs-method", "predict")
    if method not in _METHODS:
        raise invalid_argument(f"invalid tfs-method {shown(method)}: must be {', '.join(_METHODS)}")
    model = f"{name}/versions/{version}" if version else name
    is_photo = request.headers.get("content-type", "").strip().lower().startswith(_PHOTO_TYPES)
    if is_photo or request.method != "POST":  # which /photos rejects with the method that is allowed
        return f"{PHOTOS}{model}"
    return f"/v1/models/{model}:{method}"


def _refuse(error: StatusError, _request: Request, _context: RequestContext) -> NoReturn:
    raise error
