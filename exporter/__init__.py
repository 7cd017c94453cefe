"""Bakes trained image classifiers into signed SavedModels that turn photos into labels.

Knows TensorFlow and the messages of `wire`; must not know a server or a client.
"""
