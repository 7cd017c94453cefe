"""The v2 protocol (Open Inference Protocol) on both ports: a codec around the inference core, as REST and gRPC are."""
