"""Messages of the TensorFlow Serving API: arrays to protobuf to JSON and back.

The room holds codecs only. It must not know TensorFlow, sockets, files a user names, or a command line.
"""
