"""What every runtime is: signatures, and one way to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from savedmodel_bakery.wire.tensors import Tensor


class Runtime(Protocol):
    """A loaded model. `run` may be called from many threads at once."""

    @property
    def signatures(self) -> Mapping[str, Any]:
        """SignatureDefs by key."""

    def run(
        self, feeds: Mapping[str, Tensor], fetches: Sequence[str], *, timeout_s: float | None = None
    ) -> list[Tensor]:
        """Run the model once.

        Args:
            feeds: by tensor name. Shapes are not checked against the signature's, as the real server doesn't.
            fetches: tensor names.
            timeout_s: limit of the run; None is none.

        Returns:
            One tensor a fetch, in their order.

        Raises:
            StatusError: what the runtime said, with its code.
        """

    def close(self) -> None:
        """Give the model's memory back; nothing may be running."""
