"""gRPC: a codec around the inference core. Parses requests, serializes responses, maps errors to status codes."""
