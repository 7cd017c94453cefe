"""gRPC: bytes to a message, one call of the data plane, a message to bytes."""
