"""The interface of a runtime: signatures, and one way to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.wire.tensors import Tensor


class Runtime(Protocol):
    """A loaded model. `run` may be called from many threads at once."""

    @property
    def signatures(self) -> Mapping[str, Any]:
        """SignatureDefs by key."""

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], context: RequestContext) -> list[Tensor]:
        """Run the model once and return one tensor per fetch, in their order.

        Feeds and fetches are by tensor name. Like the real server, does not check the shapes of feeds against the
        signature. The run ends soon after the deadline or cancellation of its context.

        Raises:
            StatusError: the run failed; code and message are the runtime's.
        """

    def close(self) -> None:
        """Free the model; no run may be active."""
