"""The page of all metrics, for Prometheus."""

from __future__ import annotations

from prometheus_client import generate_latest

from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.serving.telemetry.registry import REGISTRY

CONTENT_TYPE = metrics.CONTENT_TYPE


def page() -> bytes:
    """Return TensorFlow Serving's metrics as the real server writes them, then our own."""
    return metrics.page() + generate_latest(REGISTRY)
