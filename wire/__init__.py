"""Messages of the TensorFlow Serving API: arrays to protobuf and JSON, and back.

This package contains codecs only. It knows neither TensorFlow nor sockets, files or command lines.
"""
