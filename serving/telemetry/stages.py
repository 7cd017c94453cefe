"""How long runs read images, and how long the rest of them takes."""

from __future__ import annotations

from prometheus_client import Histogram

from savedmodel_bakery.serving.telemetry.registry import REGISTRY

RUN_STAGE_SECONDS = Histogram(
    "bakery_run_stage_seconds",
    "Duration of the stages of a run, in a sample of the runs (--stage_sample_interval).",
    ("model_name", "model_version", "stage"),
    buckets=tuple(0.001 * 2**power for power in range(15)),
    registry=REGISTRY,
)


class Stages:
    """Records the stages of the runs of one version of a model.

    Args:
        name: of the model.
        version: its number.
    """

    def __init__(self, name: str, version: int) -> None:
        self._decoding = RUN_STAGE_SECONDS.labels(name, str(version), "decoding")
        self._network = RUN_STAGE_SECONDS.labels(name, str(version), "network")

    def record(self, decoding_s: float, network_s: float) -> None:
        """Record a run."""
        self._decoding.observe(decoding_s)
        self._network.observe(network_s)
