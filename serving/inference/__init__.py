"""Inference on a loaded servable: tensors in, tensors out. Knows no transport and none of its message types."""
