"""The methods of the synchronous clients that take images, one per task."""

from __future__ import annotations

from typing import Any, TypeAlias, overload

from savedmodel_bakery.answers.images import Image
from savedmodel_bakery.answers.tasks.classify import Classification
from savedmodel_bakery.answers.tasks.detect import DETECT, Detections
from savedmodel_bakery.answers.tasks.embed import EMBED, Embedding
from savedmodel_bakery.answers.tasks.multilabel import MULTILABEL, Tags
from savedmodel_bakery.answers.tasks.regress import REGRESS, Regression
from savedmodel_bakery.answers.tasks.segment import SEGMENT, Segmentation
from savedmodel_bakery.client import image_flows
from savedmodel_bakery.client.flow_runners import Result
from savedmodel_bakery.client.flows import Flow, Flows

Images: TypeAlias = list[Any] | tuple[Any, ...]  # of Image; list[Image] would reject list[Path]


class ImageMethods:
    """The methods that `Client` and `AmqpClient` share."""

    _flows: Flows

    def _run(self, flow: Flow[Result]) -> Result:
        """Send a flow's calls and return its result."""
        raise NotImplementedError

    @overload
    def classify(self, images: Image, *, top_k: int | None = None) -> Classification: ...

    @overload
    def classify(self, images: Images, *, top_k: int | None = None) -> list[Classification]: ...

    def classify(self, images: Any, *, top_k: int | None = None) -> Any:
        """Classify an image, or several in one request.

        Args:
            images: one image, or a list or tuple of images. An image is a path (str or Path); the content of an image
                file as bytes, also in base64; a binary file object; a Pillow image; or a uint8 array
                [height, width, 3]. An array of the network's input size is sent as it is, without cropping; others
                are encoded as PNG, which needs the extra `draw`. URLs are not fetched.
            top_k: number of classes to return per image, at least 1; by default as many as the model returns.

        Returns:
            One result for one image; for a list or tuple a list, in the same order. An image that the model cannot
            read has `ok=False` and does not affect the others.

        Raises:
            ClientError: the call failed. RequestRefusedError is also raised before anything is sent, if the model has
                another task.
            MissingPackageError: an image is an array, and the extra `draw` is not installed.
            OSError: a file cannot be read.
            TypeError: an image is of another type.
            ValueError: an image is a URL or an array of another dtype or shape, or `top_k` is below 1.
        """
        return self._run(image_flows.classify(self._flows, images, top_k=top_k))

    @overload
    def tags(self, images: Image) -> Tags: ...

    @overload
    def tags(self, images: Images) -> list[Tags]: ...

    def tags(self, images: Any) -> Any:
        """Return the labels that each image has; for arguments and errors see `classify`."""
        return self._run(image_flows.run_task(self._flows, MULTILABEL, images))

    @overload
    def embed(self, images: Image) -> Embedding: ...

    @overload
    def embed(self, images: Images) -> list[Embedding]: ...

    def embed(self, images: Any) -> Any:
        """Return the embedding of each image; for arguments and errors see `classify`."""
        return self._run(image_flows.run_task(self._flows, EMBED, images))

    @overload
    def detect(self, images: Image) -> Detections: ...

    @overload
    def detect(self, images: Images) -> list[Detections]: ...

    def detect(self, images: Any) -> Any:
        """Return the objects in each image; for arguments and errors see `classify`."""
        return self._run(image_flows.run_task(self._flows, DETECT, images))

    @overload
    def segment(self, images: Image) -> Segmentation: ...

    @overload
    def segment(self, images: Images) -> list[Segmentation]: ...

    def segment(self, images: Any) -> Any:
        """Return the class of each pixel of each image; for arguments and errors see `classify`."""
        return self._run(image_flows.run_task(self._flows, SEGMENT, images))

    @overload
    def regress(self, images: Image) -> Regression: ...

    @overload
    def regress(self, images: Images) -> list[Regression]: ...

    def regress(self, images: Any) -> Any:
        """Return the numbers of each image; for arguments and errors see `classify`."""
        return self._run(image_flows.run_task(self._flows, REGRESS, images))
