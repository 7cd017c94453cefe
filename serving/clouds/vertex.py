"""The environment variables of Vertex AI as flags of the server, and the model that they name.

https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from savedmodel_bakery.errors import BakeError, ClientError
from savedmodel_bakery.storage.manifest import GRAPH
from savedmodel_bakery.storage.pull import newest_version, pull
from savedmodel_bakery.storage.store import open_store
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

logger = logging.getLogger(__name__)

STORAGE_URI = "AIP_STORAGE_URI"
_PORT = "AIP_HTTP_PORT"
_FLAGS = {
    _PORT: "rest_api_port",
    "AIP_HEALTH_ROUTE": "health_route",
    "AIP_PREDICT_ROUTE": "predict_route",
    STORAGE_URI: "model_base_path",
}


def make_flags(environment: Mapping[str, str]) -> list[str]:
    """Return the flags that the variables stand for; an empty variable counts as missing.

    Raises StatusError for a port that is not one.
    """
    port = environment.get(_PORT)
    if port and not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
        raise invalid_argument(f"invalid {_PORT} {port}: must be a number between 1 and 65535")
    return [f"--{flag}={environment[name]}" for name, flag in _FLAGS.items() if environment.get(name)]


def copy_model(url: str) -> str:
    """Copy the model at a URL to a temporary folder, and return it as a base path.

    Vertex AI copies the folder that `artifactUri` names. That of a version becomes version 1, because its number is
    lost; of a model's folder, the newest version is copied. The copy is not removed.

    Raises:
        StatusError: there is no complete version, it has no manifest or differs from it, or it can't be read.
        MissingPackageError: the package for the URL's scheme is not installed.
    """
    try:
        store = open_store(url)
        logger.info("listing %s", store)
        if GRAPH in store.sizes():
            version, number = store, 1
        else:
            version = newest_version(store)
            number = int(version.name)
        base_path = Path(tempfile.mkdtemp(prefix="bakery-model-"))
        pull(version, base_path, number=number, progress=lambda step: logger.info("%s: %s", version, step))
    except ValueError as error:
        raise invalid_argument(f"{STORAGE_URI}: {error}") from error
    except (BakeError, ClientError) as error:
        raise StatusError(Code.UNAVAILABLE, f"{STORAGE_URI}: {error}") from error
    return str(base_path)
