"""The synchronous client. The calls behind its methods are in `client.flows`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, overload

from savedmodel_bakery.answers.images import Image
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import CLASSIFY_SIGNATURE, DEFAULT_SIGNATURE, REGRESS_SIGNATURE
from savedmodel_bakery.answers.task import ImageResult
from savedmodel_bakery.answers.tasks.keypoints import KEYPOINTS, Keypoints
from savedmodel_bakery.answers.tasks.labels import MULTILABEL, Classification, Tags
from savedmodel_bakery.answers.tasks.numbers import EMBED, REGRESS, TENSORS, Embedding, Regression, Tensors
from savedmodel_bakery.answers.tasks.regions import DETECT, SEGMENT, TRANSFORM, Detections, Picture, Segmentation
from savedmodel_bakery.client.calls import Call, FindModel, ModelSpec, Result, VersionStatus, first_cause, run_flow
from savedmodel_bakery.client.credentials import Tls
from savedmodel_bakery.client.flows import Flow, Flows, Inputs
from savedmodel_bakery.client.servers import TransportName, check_timeout, parse_server
from savedmodel_bakery.client.transports import create_transport, find_model
from savedmodel_bakery.client.transports.transport import ModelTransport, Transport
from savedmodel_bakery.defaults import DEFAULT_MODEL
from savedmodel_bakery.errors import ClientError
from savedmodel_bakery.wire.examples import Example, ScoredClass

Images: TypeAlias = list[Any] | tuple[Any, ...] | Iterator[Any]  # of Image; list[Image] would reject list[Path]
_Self = TypeVar("_Self", bound="BaseClient")


class BaseClient:
    """The methods that `Client` and `AmqpClient` share."""

    def __init__(self, spec: ModelSpec, transport: Transport, find_model: Callable[[], str] | None = None) -> None:
        self._flows = Flows(spec, find_model)
        self._transport = transport
        self._closed = False

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Later calls raise RuntimeError."""
        self._closed = True
        self._transport.close()

    @overload
    def classify(self, images: Image, *, top_k: int | None = None, inputs: Inputs = None) -> Classification: ...

    @overload
    def classify(self, images: Images, *, top_k: int | None = None, inputs: Inputs = None) -> list[Classification]: ...

    def classify(
        self, images: Image | Images, *, top_k: int | None = None, inputs: Inputs = None
    ) -> Classification | list[Classification]:
        """Classify an image, or several in one request.

        Args:
            images: one image, or several: a list, a tuple, a generator such as `Path("photos").glob("*.jpg")`, or an
                array [n, height, width, 3]. An image is a path (str or Path); the content of an image file as bytes,
                also in base64; a binary file object; a Pillow image; or a uint8 array [height, width, 3], or gray
                [height, width] or [height, width, 1]. An array of the network's input size is sent as it is, without
                cropping; others are encoded as PNG, which needs the extra `draw`. URLs are not fetched.
            top_k: number of classes to return per image, at least 1; by default as many as the model returns.
            inputs: what the model takes beside the image, by name: for one image its value, for several an array or
                list with one row per image. Nothing is broadcast. As `image_2`, images.

        Returns:
            One result for one image; for several a list, in the same order. An image that the model cannot
                read has `ok=False` and does not affect the others.

        Examples:
            >>> from savedmodel_bakery import Client, LocalTransport
            >>> with Client(transport=LocalTransport("saved_model/efficientnet_lite0")) as client:
            ...     [result.label for result in client.classify(["examples/coffee.png", "examples/rocket.jpg"])]
            ['espresso', 'missile']

        Raises:
            ClientError: the call failed. RequestRefusedError is also raised before anything is sent, if the model has
                another task, or if names, dtypes or shapes of the `inputs` do not match the model.
            MissingPackageError: an image is an array, and the extra `draw` is not installed.
            OSError: a file cannot be read.
            TypeError: an image is of another type.
            ValueError: an image is a URL or an array of another dtype or shape, `top_k` is below 1, or one of the
                `inputs` has another number of rows than there are images.
        """
        return self._run(self._flows.classify(images, top_k=top_k, inputs=inputs))

    @overload
    def answer(self, images: Image, *, inputs: Inputs = None) -> ImageResult: ...

    @overload
    def answer(self, images: Images, *, inputs: Inputs = None) -> list[ImageResult]: ...

    def answer(self, images: Image | Images, *, inputs: Inputs = None) -> ImageResult | list[ImageResult]:
        """Return the result of the model's task for each image, whatever the task is; the only way for several heads.

        For arguments and errors see `classify`.

        Examples:
            >>> from savedmodel_bakery import Client, LocalTransport
            >>> with Client(transport=LocalTransport("saved_model/efficientnet_lite0")) as client:
            ...     client.answer("examples/coffee.png").label
            'espresso'
        """
        return self._run(self._flows.answer(images, inputs))

    @overload
    def tags(self, images: Image, *, inputs: Inputs = None) -> Tags: ...

    @overload
    def tags(self, images: Images, *, inputs: Inputs = None) -> list[Tags]: ...

    def tags(self, images: Image | Images, *, inputs: Inputs = None) -> Tags | list[Tags]:
        """Return the labels that each image has; for arguments and errors see `classify`."""
        return self._run(self._flows.run_task(MULTILABEL, images, inputs))

    @overload
    def embed(self, images: Image, *, inputs: Inputs = None) -> Embedding: ...

    @overload
    def embed(self, images: Images, *, inputs: Inputs = None) -> list[Embedding]: ...

    def embed(self, images: Image | Images, *, inputs: Inputs = None) -> Embedding | list[Embedding]:
        """Return the embedding of each image; for arguments and errors see `classify`."""
        return self._run(self._flows.run_task(EMBED, images, inputs))

    @overload
    def detect(self, images: Image, *, inputs: Inputs = None) -> Detections: ...

    @overload
    def detect(self, images: Images, *, inputs: Inputs = None) -> list[Detections]: ...

    def detect(self, images: Image | Images, *, inputs: Inputs = None) -> Detections | list[Detections]:
        """Return the objects in each image; for arguments and errors see `classify`."""
        return self._run(self._flows.run_task(DETECT, images, inputs))

    @overload
    def segment(self, images: Image, *, inputs: Inputs = None) -> Segmentation: ...

    @overload
    def segment(self, images: Images, *, inputs: Inputs = None) -> list[Segmentation]: ...

    def segment(self, images: Image | Images, *, inputs: Inputs = None) -> Segmentation | list[Segmentation]:
        """Return the class of each pixel of each image; for arguments and errors see `classify`."""
        return self._run(self._flows.run_task(SEGMENT, images, inputs))

    @overload
    def keypoints(self, images: Image, *, inputs: Inputs = None) -> Keypoints: ...

    @overload
    def keypoints(self, images: Images, *, inputs: Inputs = None) -> list[Keypoints]: ...

    def keypoints(self, images: Image | Images, *, inputs: Inputs = None) -> Keypoints | list[Keypoints]:
        """Return the points in each image, by name; for arguments and errors see `classify`."""
        return self._run(self._flows.run_task(KEYPOINTS, images, inputs))

    @overload
    def transform(self, images: Image, *, inputs: Inputs = None) -> Picture: ...

    @overload
    def transform(self, images: Images, *, inputs: Inputs = None) -> list[Picture]: ...

    def transform(self, images: Image | Images, *, inputs: Inputs = None) -> Picture | list[Picture]:
        """Return the picture that the network makes of each image; for arguments and errors see `classify`."""
        return self._run(self._flows.run_task(TRANSFORM, images, inputs))

    @overload
    def regress(self, images: Image, *, inputs: Inputs = None) -> Regression: ...

    @overload
    def regress(self, images: Images, *, inputs: Inputs = None) -> list[Regression]: ...

    def regress(self, images: Image | Images, *, inputs: Inputs = None) -> Regression | list[Regression]:
        """Return the numbers of each image; for arguments and errors see `classify`."""
        return self._run(self._flows.run_task(REGRESS, images, inputs))

    @overload
    def tensors(self, images: Image, *, inputs: Inputs = None) -> Tensors: ...

    @overload
    def tensors(self, images: Images, *, inputs: Inputs = None) -> list[Tensors]: ...

    def tensors(self, images: Image | Images, *, inputs: Inputs = None) -> Tensors | list[Tensors]:
        """Return what the network returns for each image, by name; for arguments and errors see `classify`."""
        return self._run(self._flows.run_task(TENSORS, images, inputs))

    def predict(
        self,
        inputs: Mapping[str, Any],
        *,
        signature: str = DEFAULT_SIGNATURE,
        output_filter: Sequence[str] = (),
        model: str | None = None,
        version: int | None = None,
        label: str | None = None,
    ) -> Prediction:
        """Run a signature on arrays.

        The inputs are checked against the model's metadata before they are sent. The metadata are fetched once, and
        again if another version responds or if the server refuses inputs that they allowed.

        Args:
            inputs: name to array, of any memory layout and byte order, or to nested dicts and lists of arrays: their
                names are keys and positions joined by `/`, such as `a/0/b` for `{"a": [{"b": array}]}`. Python
                numbers, bytes and str, alone or in lists, are converted to the signature's element type.
            signature: name of the signature.
            output_filter: aliases of the outputs to return; empty for all.
            model: another model than the client's.
            version: version number; if `model` or `label` is set, the default is the newest.
            label: version label.

        Returns:
            The outputs, as arrays of the signature's dtypes and shapes.

        Examples:
            >>> import numpy as np
            >>> from savedmodel_bakery import Client, LocalTransport
            >>> with Client(transport=LocalTransport("saved_model/efficientnet_lite0")) as client:
            ...     client.predict({"pixels": np.zeros((2, 224, 224, 3), np.uint8)}, signature="pixels")
            <Prediction of signature "pixels" of model "efficientnet_lite0" version 1: class_ids int32[2, 5]; ...>

        Raises:
            ClientError: the call failed. RequestRefusedError is also raised before anything is sent, if names, types
                or shapes do not match the signature, or if the request would be larger than 2 GiB.
            ValueError: an input is not an array, or the version is invalid.
            TypeError: `inputs` is not a dict.
        """
        return self._run(
            self._flows.predict(
                inputs, signature=signature, output_filter=output_filter, model=model, version=version, label=label
            )
        )

    def classify_examples(
        self, examples: Sequence[Example], *, signature: str = CLASSIFY_SIGNATURE
    ) -> list[list[ScoredClass]]:
        """Run a Classify signature on examples.

        Args:
            examples: dicts from feature name to a value or a list of values: bytes, str, int or float.
            signature: name of the signature.

        Returns:
            The classes of each example as (label, score), in the server's order.

        Raises:
            ClientError: the call failed.
        """
        return self._run(self._flows.classify_examples(examples, signature=signature))

    def regress_examples(self, examples: Sequence[Example], *, signature: str = REGRESS_SIGNATURE) -> list[float]:
        """Run a Regress signature on examples, and return a number for each; see `classify_examples`."""
        return self._run(self._flows.regress_examples(examples, signature=signature))

    def metadata(self) -> dict[str, Any]:
        """Return the model's signatures as protobuf JSON, the same over every transport.

        Other servers of the v2 protocol only state names, dtypes and shapes of `serving_default`.

        Raises:
            ClientError: the call failed.
        """
        return self._run(self._flows.metadata())

    def status(self) -> list[VersionStatus]:
        """Return the state of the client's version, or of all versions that the server knows, newest first.

        Raises:
            ClientError: the call failed.
        """
        return self._run(self._flows.status())

    def _run(self, flow: Flow[Result]) -> Result:
        self._check_open()
        try:
            return run_flow(flow, self._send)
        except ClientError as exc:
            raise exc.with_traceback(None) from first_cause(exc)

    def _send(self, call: Call | FindModel) -> Any:
        if isinstance(call, FindModel):
            return call.run()
        return self._transport.send(call)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed")


class Client(BaseClient):
    """Calls a model server over gRPC, REST or v2. A context manager; not for use by several threads at once.

    A call that cannot reach a server, or gets UNAVAILABLE, is retried up to three times within `timeout_s`. If an
    overloaded server says when to try again, the client does so, unless that is after `timeout_s`. Nothing is connected
    before the first call.

    Args:
        target: HOST or HOST:PORT, whose port overrides the two below. A scheme selects transport and TLS: `grpc://`,
            `grpcs://`, `http://` or `https://`. Over gRPC without TLS also a list of targets. gRPC balances calls over
            the list, and over the addresses to which a name resolves.
        transport: `grpc` or `rest`, the TensorFlow Serving API; or `v2` (HTTP) or `v2-grpc`, the v2 protocol (Open
            Inference Protocol), for any server that has it. By default that of the target, or `grpc`. For AMQP use
            `AmqpClient`. Or a `LocalTransport`, which needs no server: then the target, its ports, `tls`, `token` and
            `timeout_s` do not apply.
        port: gRPC port, for `grpc` and `v2-grpc`; 8500 by default.
        rest_api_port: HTTP port, for `rest` and `v2`; 8501 by default.
        tls: encrypt the connection; `Tls()` by default if the target begins with `grpcs://` or `https://`.
        token: bearer token to send with each call. Use TLS, or others may read it.
        timeout_s: time limit of a call in seconds, above 0 and at most a day.
        model: name of the model; by default the server's only one, or `efficientnet_lite0`, the demo's, if the server
            does not list its models, as tensorflow_model_server.
        version: version number; the newest by default.
        label: version label.

    Examples:
        >>> from savedmodel_bakery import Client
        >>> with Client("127.0.0.1:8500", model="efficientnet_lite0") as client:
        ...     client.metadata()["model_spec"]["name"]
        'efficientnet_lite0'

    Raises:
        ValueError: an argument is invalid.
    """

    def __init__(
        self,
        target: str | Sequence[str] = "127.0.0.1",
        *,
        transport: TransportName | ModelTransport | None = None,
        port: int | None = None,
        rest_api_port: int | None = None,
        tls: Tls | None = None,
        token: str | None = None,
        timeout_s: float = 30.0,
        model: str | None = None,
        version: int | None = None,
        label: str | None = None,
    ) -> None:
        check_timeout(timeout_s)
        if transport is not None and not isinstance(transport, str):
            super().__init__(ModelSpec(transport.model if model is None else model, version, label), transport)
            return
        spec = ModelSpec(DEFAULT_MODEL if model is None else model, version, label)
        server = parse_server(target, transport=transport, port=port, rest_api_port=rest_api_port, tls=tls, token=token)
        find = None if model is not None else partial(find_model, server, timeout_s=timeout_s, argument="model=")
        super().__init__(spec, create_transport(server, timeout_s=timeout_s), find)
