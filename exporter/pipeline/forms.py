"""Unifies dtypes and shapes of tensors; an unknown dimension matches any size."""

from __future__ import annotations

from collections.abc import Iterable

from savedmodel_bakery.exporter.signatures import Tensor

_UNKNOWN = -1


def unify(first: Tensor, second: Tensor) -> Tensor | None:
    """Return the first tensor with the unified shape of both; None if dtypes or shapes differ."""
    if first.dtype != second.dtype:
        return None
    if first.shape is None or second.shape is None:
        return Tensor(first.alias, first.dtype, second.shape if first.shape is None else first.shape)
    if len(first.shape) != len(second.shape):
        return None
    shape = []
    for size, other in zip(first.shape, second.shape, strict=True):
        if _UNKNOWN not in (size, other) and size != other:
            return None
        shape.append(other if size == _UNKNOWN else size)
    return Tensor(first.alias, first.dtype, shape)


def unify_all(tensors: Iterable[Tensor]) -> Tensor | None:
    """Unify one tensor or more, from the first to the last."""
    first, *others = tensors
    unified: Tensor | None = first
    for other in others:
        unified = None if unified is None else unify(unified, other)
    return unified
