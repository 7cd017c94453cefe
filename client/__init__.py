"""Calls a TensorFlow Serving endpoint over gRPC, REST or AMQP, or a server of the v2 protocol, without TensorFlow."""
