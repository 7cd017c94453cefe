"""Runs models: one module per file format, and the batcher in front of them. Knows no transport and no model names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from savedmodel_bakery import tensorflow_import

if TYPE_CHECKING:
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


def import_tensorflow() -> None:
    """Import TensorFlow but not Keras, which takes a third of the time of the import and 110 MB.

    TensorFlow Text's layers may import Keras afterwards.
    """
    tensorflow_import.import_tensorflow(without=tensorflow_import.KERAS)
