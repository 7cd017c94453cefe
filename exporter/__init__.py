"""Bakes trained vision models into signed SavedModels that take photos.

Knows TensorFlow and the messages of `wire`; must not know a server or a client.
"""
