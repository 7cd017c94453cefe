"""Runs models: one module per file format, and the batcher in front of them. Knows no transport and no model names."""
