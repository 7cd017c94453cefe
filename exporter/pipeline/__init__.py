"""Pipelines: a TOML file connects signatures of SavedModels, and they become one SavedModel."""
