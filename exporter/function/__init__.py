"""Bakes a user's TensorFlow function into a SavedModel."""
