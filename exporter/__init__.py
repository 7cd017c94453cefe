"""Bake a trained image classifier into a signed SavedModel that answers photos with labels.

Knows TensorFlow and the messages of `wire`; must not know a server or a client.
"""
