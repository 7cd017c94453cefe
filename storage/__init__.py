"""Keeps versions in folders and in buckets: lists, publishes, pulls and removes them. Knows no TensorFlow."""
