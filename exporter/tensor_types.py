"""Names for the tensors of graph code, with their dtypes and shapes, and for TensorFlow's other untyped objects.

TensorFlow has no type stubs, so mypy sees `Any` behind each name; the names are for readers. Imports nothing heavy.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Tensor: TypeAlias = Any
"""A tensor of any dtype and shape."""

# One image

EncodedImage: TypeAlias = Any
"""An image as a client sends it, string []: the bytes of an image file, base64 text or a data URI."""

ImageBytes: TypeAlias = Any
"""The bytes of one image file, string []."""

Pixels: TypeAlias = Any
"""The pixels of one image, uint8 [height, width, 3], R, G, B; where stated, [height, width, 4] with alpha."""

NetworkPixels: TypeAlias = Any
"""One image at the size of the network's input, float32 [height, width, 3], R, G, B, 0..255 before normalising."""

FileFormat: TypeAlias = Any
"""A format constant of `image.encodings`, int32 []."""

Orientation: TypeAlias = Any
"""EXIF orientation, int32 [], 1..8; 1 is upright."""

Side: TypeAlias = Any
"""A height, width or pixel position, int64 []."""

Size: TypeAlias = tuple[Side, Side]
"""Height and width in pixels, int64 [] each."""

Offset: TypeAlias = Any
"""A position in a file, in bytes, int32 []; 0 where there is no such position."""

Integer: TypeAlias = Any
"""An integer read from a file, int32 [] or int64 []."""

Integers: TypeAlias = Any
"""Integers read from a file, int32 [count]."""

Flag: TypeAlias = Any
"""A condition, bool []."""

Text: TypeAlias = Any
"""A string, string []."""

# A batch

EncodedImages: TypeAlias = Any
"""Images as clients send them, string [batch]."""

PixelBatch: TypeAlias = Any
"""Images at the size of the network's input, float32 [batch, height, width, 3], R, G, B, 0..255."""

NormalisedBatch: TypeAlias = Any
"""The network's input, float32 [batch, height, width, channels]."""

NetworkOutput: TypeAlias = Any
"""What a network returns, numbers [batch, classes] or [batch, 1, 1, classes]."""

Scores: TypeAlias = Any
"""One row of scores per image, float32 [batch, classes]: probabilities, or logits before softmax."""

Flags: TypeAlias = Any
"""One condition per image, bool [batch]."""

Texts: TypeAlias = Any
"""One string per image, string [batch]."""

Outputs: TypeAlias = dict[str, Any]
"""The outputs of a signature: tensor by alias."""

# Other objects of TensorFlow

ConcreteFunction: TypeAlias = Any
"""A traced function, tf.types.experimental.ConcreteFunction."""

GraphDef: TypeAlias = Any
"""A serialized graph, the protobuf message tensorflow.GraphDef."""

FunctionDef: TypeAlias = Any
"""A function in the library of a GraphDef, the protobuf message tensorflow.FunctionDef."""

NodeDef: TypeAlias = Any
"""One operation of a graph, the protobuf message tensorflow.NodeDef."""

Variable: TypeAlias = Any
"""A tf.Variable."""

KerasTensor: TypeAlias = Any
"""A symbolic tensor of a Keras model under construction, float32 [batch, height, width, channels]."""
