"""The methods of the clients for asyncio that take images; see `image_methods`."""

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


class AsyncImageMethods:
    """The methods that `AsyncClient` and `AsyncAmqpClient` share."""

    _flows: Flows

    async def _run(self, flow: Flow[Result]) -> Result:
        """Send a flow's calls and return its result."""
        raise NotImplementedError

    @overload
    async def classify(self, images: Image, *, top_k: int | None = None) -> Classification: ...

    @overload
    async def classify(self, images: Images, *, top_k: int | None = None) -> list[Classification]: ...

    async def classify(self, images: Any, *, top_k: int | None = None) -> Any:
        """See `Client.classify`."""
        return await self._run(image_flows.classify(self._flows, images, top_k=top_k))

    @overload
    async def tags(self, images: Image) -> Tags: ...

    @overload
    async def tags(self, images: Images) -> list[Tags]: ...

    async def tags(self, images: Any) -> Any:
        """See `Client.tags`."""
        return await self._run(image_flows.run_task(self._flows, MULTILABEL, images))

    @overload
    async def embed(self, images: Image) -> Embedding: ...

    @overload
    async def embed(self, images: Images) -> list[Embedding]: ...

    async def embed(self, images: Any) -> Any:
        """See `Client.embed`."""
        return await self._run(image_flows.run_task(self._flows, EMBED, images))

    @overload
    async def detect(self, images: Image) -> Detections: ...

    @overload
    async def detect(self, images: Images) -> list[Detections]: ...

    async def detect(self, images: Any) -> Any:
        """See `Client.detect`."""
        return await self._run(image_flows.run_task(self._flows, DETECT, images))

    @overload
    async def segment(self, images: Image) -> Segmentation: ...

    @overload
    async def segment(self, images: Images) -> list[Segmentation]: ...

    async def segment(self, images: Any) -> Any:
        """See `Client.segment`."""
        return await self._run(image_flows.run_task(self._flows, SEGMENT, images))

    @overload
    async def regress(self, images: Image) -> Regression: ...

    @overload
    async def regress(self, images: Images) -> list[Regression]: ...

    async def regress(self, images: Any) -> Any:
        """See `Client.regress`."""
        return await self._run(image_flows.run_task(self._flows, REGRESS, images))
