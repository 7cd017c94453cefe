"""Task image: a picture, such as one that is denoised, enlarged or restyled, or a map of depths or heat."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import png
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.image import framing
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tasks import resampling
from savedmodel_bakery.exporter.tasks.task import (
    Answers,
    Column,
    Comparison,
    NetworkResult,
    Signature,
    Task,
    Tolerance,
)
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Side, Tensor


@dataclass(frozen=True)
class Picture(Task):
    """See `Task`. A PNG file of the network's output, gray or RGB."""

    name: ClassVar[str] = "image"
    measure: ClassVar[str] = "mean difference of levels, as a part of white"
    tolerance: ClassVar[Tolerance] = Tolerance(atol=0.005)
    common: ClassVar[str] = "pictures within 2 % of white in the mean"
    approximation: ClassVar[Tolerance] = Tolerance(atol=0.02)
    max_side: ClassVar[int | None] = 2**16 - 1  # PNG files of more than a million can't be written
    channels: int  # 1 or 3
    lowest: float  # the value that is black
    highest: float  # the value that is white
    bits: int  # 8 or 16
    of_photo_size: bool
    preprocessing: Preprocessing

    @property
    def white(self) -> int:
        """The highest level."""
        return int(2**self.bits - 1)

    @property
    def _is_bgr(self) -> bool:
        """Whether the network orders colours as B, G, R; it returns them as it takes them."""
        return self.channels == 3 and self.preprocessing.channels == "BGR"

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        answer = Signature("images", {"png_bytes": Column((), b"")}, self._compute)
        return {"serving_default": answer, "pixels": replace(answer, takes="pixels")}

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`."""
        levels, expected = self._read(answers["serving_default"]["png_bytes"]), self._expected(result)
        if levels.shape != expected.shape:
            raise VerificationError(f"the SavedModel's picture has the shape {levels.shape}, not {expected.shape}")
        beyond_rounding = np.maximum(np.abs(levels - expected) - 0.5, 0)
        difference = float(beyond_rounding.mean()) / self.white
        is_within = tolerance.allows(np.float64(difference), np.float64(1))
        return Comparison(difference, is_within, self._describe(levels), self._describe(expected))

    def _compute(self, outputs: NetworkOutputs, sizes: Tensor) -> Sequence[Tensor]:
        dtype = {8: tf.uint8, 16: tf.uint16}[self.bits]

        def levels_of(values: Tensor) -> Tensor:
            if self._is_bgr:
                values = tf.reverse(values, [-1])
            scaled = (values - self.lowest) * (self.white / (self.highest - self.lowest))
            return tf.cast(tf.round(tf.clip_by_value(scaled, 0, self.white)), dtype)

        def encode(picture: Tensor) -> Tensor:
            return tf.io.encode_png(levels_of(picture))

        def encode_for_photo(arguments: tuple[Tensor, framing.Placement]) -> Tensor:
            picture, placement = arguments
            rows, columns = resampling.resample(picture, placement, self.preprocessing)
            values_of = resampling.interpolator(
                picture[rows.first : rows.end, columns.first : columns.end], rows, columns
            )

            def compute(first: Side, end: Side, state: Tensor) -> tuple[Tensor, Tensor]:
                return levels_of(values_of(first, end)), state

            spec = tf.TensorSpec([None, None, self.channels], dtype)
            levels, _ = resampling.in_bands(placement, self.channels, compute, spec, tf.constant(0))
            return tf.io.encode_png(levels)

        spec = tf.TensorSpec([], tf.string)
        if not self.of_photo_size:
            return [tf.map_fn(encode, outputs["picture"], fn_output_signature=spec)]
        placements = framing.place(sizes, self.preprocessing)
        return [
            tf.map_fn(
                encode_for_photo, (outputs["picture"], placements), fn_output_signature=spec, parallel_iterations=1
            )
        ]

    def _expected(self, result: NetworkResult) -> np.ndarray:
        """Return the levels [height, width, channels], not rounded."""
        values = result.outputs["picture"].astype(np.float64)
        if self.of_photo_size:
            values = resampling.interpolate_expected(*resampling.crop_expected(values, result.size, self.preprocessing))
        values = values[..., ::-1] if self._is_bgr else values
        levels = (values - self.lowest) / (self.highest - self.lowest) * self.white
        return np.asarray(levels.clip(0, self.white))

    def _read(self, file: bytes) -> np.ndarray:
        """Return the levels in a PNG file, [height, width, channels]; Pillow can't read RGB of 16 bits."""
        if self.bits == 16:
            width, height, rows, _ = png.Reader(bytes=file).asDirect()
            return np.reshape(np.array(list(rows)), (height, width, self.channels))
        levels = np.asarray(Image.open(io.BytesIO(file)))
        return levels.reshape(*levels.shape[:2], self.channels)

    def _describe(self, levels: np.ndarray) -> str:
        height, width, channels = levels.shape
        kind = "gray" if channels == 1 else "RGB"
        return f"{width}x{height} {kind} with a mean of {levels.mean():.1f} of {self.white}"
