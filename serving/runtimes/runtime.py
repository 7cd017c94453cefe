"""What every runtime is: signatures, and one way to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from savedmodel_bakery.wire import tensors
from savedmodel_bakery.wire.dtypes import DType, of_number


class Tensor(NamedTuple):
    """An array with its element type, which numpy alone can't tell for quantised numbers.

    Attributes:
        array: its elements.
        dtype: their type.
        shape: where numpy can't have it (`tensors.is_vast`); `array` has one dimension then.
    """

    array: np.ndarray
    dtype: DType
    shape: tuple[int, ...] | None = None


def read_tensor(proto: Any, outside: tuple[str, Any] | None = None) -> Tensor:
    """Make a tensor of a TensorProto; see `tensors.decode_tensor`.

    Raises:
        StatusError: INVALID_ARGUMENT where it describes none.
    """
    dtype, shape = of_number(proto.dtype), tensors.read_shape(proto)
    values = tensors.decode_values(proto, shape, outside)
    return Tensor(values, dtype, shape) if tensors.is_vast(shape, dtype.numpy) else Tensor(values.reshape(shape), dtype)


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
