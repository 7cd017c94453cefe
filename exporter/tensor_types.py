"""Names for the tensors of graph code, with their dtypes and shapes, and for TensorFlow's other untyped objects.

TensorFlow has no type stubs, so mypy sees `Any` behind each name; the names are for readers. Imports nothing heavy.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Tensor: TypeAlias = Any  # of any dtype and shape

# One image
EncodedImage: TypeAlias = Any  # string [], as a client sends it: the bytes of an image file, base64 or a data URI
ImageBytes: TypeAlias = Any  # string [], the bytes of an image file
Pixels: TypeAlias = Any  # uint8 [height, width, 3], R, G, B; where stated, [height, width, 4] with alpha
NetworkPixels: TypeAlias = Any  # float32 [height, width, 3], R, G, B, 0..255, at the size of the network's input
FileFormat: TypeAlias = Any  # int32 [], a format constant of `image.encodings`
Orientation: TypeAlias = Any  # int32 [], EXIF orientation 1..8; 1 is upright
Side: TypeAlias = Any  # int64 [], a height, width or pixel position
Size: TypeAlias = tuple[Side, Side]  # int64 [] each, height and width in pixels
Offset: TypeAlias = Any  # int32 [], a position in a file, in bytes; 0 where there is no such position
Integer: TypeAlias = Any  # int32 [] or int64 [], read from a file
Integers: TypeAlias = Any  # int32 [count], read from a file
Flag: TypeAlias = Any  # bool [], a condition
Text: TypeAlias = Any  # string []

# A batch
Rows: TypeAlias = Any  # int32 [rows], numbers of rows of a request
EncodedImages: TypeAlias = Any  # string [batch], images as clients send them
PixelBatch: TypeAlias = Any  # float32 [batch, height, width, 3], R, G, B, 0..255, at the size of the network's input
NormalisedBatch: TypeAlias = Any  # float32 [batch, height, width, channels], the network's input
NetworkOutput: TypeAlias = Any  # numbers [batch, …], an output of a network, or a dict of them by name
NetworkOutputs: TypeAlias = dict[str, Any]  # float32 [batch, …] by role, see `network_outputs`
Boxes: TypeAlias = Any  # float32 [batch, boxes, 4], edges as ymin, xmin, ymax, xmax in pixels
Sides: TypeAlias = Any  # int64 [batch], heights, widths or pixel positions
Scores: TypeAlias = Any  # float32 [batch, classes], probabilities, or logits before softmax
ClassIds: TypeAlias = Any  # int32 [batch, k], best first
Texts: TypeAlias = Any  # string [batch], one per image
Outputs: TypeAlias = dict[str, Any]  # the outputs of a signature: tensor by alias

# Other objects of TensorFlow
ConcreteFunction: TypeAlias = Any  # tf.types.experimental.ConcreteFunction, a traced function
GraphDef: TypeAlias = Any  # the protobuf message tensorflow.GraphDef, a serialized graph
FunctionDef: TypeAlias = Any  # the protobuf message tensorflow.FunctionDef, a function in the library of a GraphDef
NodeDef: TypeAlias = Any  # the protobuf message tensorflow.NodeDef, one operation of a graph
MetaGraphDef: TypeAlias = Any  # the protobuf message tensorflow.MetaGraphDef, a graph of a SavedModel
SignatureDef: TypeAlias = Any  # the protobuf message tensorflow.SignatureDef, a signature of a SavedModel
OpDef: TypeAlias = Any  # the protobuf message tensorflow.OpDef, the signature of an operation
Variable: TypeAlias = Any  # tf.Variable
