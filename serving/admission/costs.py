"""What the parts of a request take of the memory, in bytes.

Each is charged before it is taken. tests/attacks/test_costs.py sends all kinds of requests to a server, and fails if
one takes more than it is charged.
"""

from __future__ import annotations

# Per byte
MESSAGE = 2  # of a message over gRPC: the message, and strings that are parsed from it
BODY = 2  # of a body over REST: as it is received, and as it is used
UNPACKED = 2  # that is unpacked: in pieces, and joined
UNPACKED_MESSAGE = 3  # of a message over gRPC that is unpacked: in pieces, joined, and parsed
TENSOR = 2  # of a tensor: as it is decoded, and TensorFlow's copy
IMAGE_BYTE = 4  # of an image file, or its base64, while the graph finds and converts the parts that it decodes
NETWORK = 2  # of the largest tensor of a network: an operation's input and its output
OUTPUT = 4  # of a model's outputs, while they are computed, encoded and sent
RESPONSE = 2  # of a response until the client has read it: as it was made, and as it is sent

# Per string of an output, beside its bytes: TensorFlow's object and Python's
STRING = 64

# Per pixel of an image while it is decoded and resized
PIXEL = 6  # 4 to 6 were measured for three and four channels
CANVAS_PIXEL = 9  # of a WebP file that may be transparent, or a GIF frame on a larger canvas; 8 to 8.1 were measured
ANIMATION_PIXEL = 13  # of an animated WebP file; 12.5 were measured
# Of a JPEG file that is progressive, or has several scans; and for each of its components. libjpeg keeps all
# coefficients: 5, 9 and 11 bytes per pixel were measured for one, three and four components.
SCANS_PIXEL, COMPONENT_PIXEL = 4, 2
