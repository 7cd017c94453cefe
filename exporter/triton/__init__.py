"""Writes model repositories for NVIDIA Triton from SavedModels and pipelines. Never runs a model."""
