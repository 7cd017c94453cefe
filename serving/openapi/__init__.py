"""Describes the URLs of the REST port as an OpenAPI document: photos, TensorFlow Serving's API and the v2 protocol."""
