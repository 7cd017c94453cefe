"""A transport that runs a model in this process. Imports TensorFlow and the server's modules on demand."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from savedmodel_bakery.client.calls import Call
from savedmodel_bakery.client.transports import grpc_codec
from savedmodel_bakery.client.transports.transport import refused
from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.wire.status import StatusError


class LocalTransport:
    """Runs a model in this process, for `Client(transport=LocalTransport(PATH))`; results are those of a server.

    Needs the extra `serve`. The model's name is that of the folder of its versions.

    Args:
        path: the folder with the model's numbered versions, such as `saved_model/flowers`, of which the newest is
            loaded, and new ones as they appear; or the folder of one version, such as `saved_model/flowers/1`.

    Attributes:
        model: name of the model.

    Examples:
        >>> from savedmodel_bakery import Client, LocalTransport
        >>> with Client(transport=LocalTransport("saved_model/efficientnet_lite0")) as client:
        ...     client.classify("examples/chelsea.png").label
        'tiger cat'

    Raises:
        ClientError: the model cannot be loaded.
        MissingPackageError: the extra is not installed.
        ValueError: the folder does not exist, or contains no version.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        with naming_extras("LocalTransport", "serve"):
            from savedmodel_bakery.serving.models.storage import find_model
            from savedmodel_bakery.serving.runtimes import import_tensorflow

            config = find_model(Path(path))
            self.model = config.name
            import_tensorflow()
            from savedmodel_bakery.serving.loaded_model import LoadedModel

        try:
            self._loaded = LoadedModel(config)
        except StatusError as error:
            raise refused(error.code, error.text) from error

    def send(self, call: Call) -> Any:
        """Run a call and return its result, as the gRPC transport does; see `Transport.send`."""
        from savedmodel_bakery.serving.admission.context import RequestContext

        method = grpc_codec.method_of(call).path.rpartition("/")[2]
        request = grpc_codec.encode_request(call)
        try:
            response = self._loaded.call(method, request, RequestContext())
        except StatusError as error:
            raise refused(error.code, error.text) from error
        return grpc_codec.decode_response(call, response)

    def close(self) -> None:
        """Stop looking for new versions."""
        self._loaded.close()
