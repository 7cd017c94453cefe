"""docs/reference/metrics.md lists every metric of the server, and no others."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Counter, Histogram

from savedmodel_bakery.serving import telemetry
from savedmodel_bakery.serving.bulk.parts import JobProgress
from savedmodel_bakery.serving.telemetry import metrics


def rows(clone: Path, prefix: str) -> set[tuple[str, str, tuple[str, ...]]]:
    """Return name, type and labels of each metric of the page whose name begins with `prefix`."""
    page = (clone / "docs" / "reference" / "metrics.md").read_text()
    found = re.findall(rf"^\| `({prefix}\S+)` \| (\w+) \| (.+?) \| \S.* \|$", page, re.MULTILINE)
    return {(name, kind, tuple(re.findall("`(.+?)`", labels))) for name, kind, labels in found}


def serving_metrics() -> list[Counter | Histogram]:
    """Return the metrics of TensorFlow Serving, whose names begin with a colon."""
    named = (value for value in vars(metrics).values() if isinstance(value, (Counter, Histogram)))
    return [metric for metric in named if metric._name.startswith(":")]


def test_the_page_lists_every_metric_with_its_type_and_labels(clone: Path) -> None:
    metrics_of_the_code = {
        (re.sub(r"\W", ":", value._documentation), value._type, value._labelnames) for value in serving_metrics()
    }
    assert metrics_of_the_code == rows(clone, ":tensorflow:")


def test_the_metrics_of_the_code_are_those_that_are_published() -> None:
    published = set(re.findall(rb"^# TYPE (:\S+)", metrics.page(), re.MULTILINE))
    assert len(published) == len(serving_metrics())


@pytest.fixture
def job(tmp_path: Path) -> Iterator[None]:
    """A bulk job on Ray, whose metrics are those of its folder."""
    progress = JobProgress(tmp_path)
    metrics.REGISTRY.register(progress)
    yield
    metrics.REGISTRY.unregister(progress)


@pytest.mark.usefixtures("job")
def test_the_page_lists_every_metric_of_our_own(clone: Path) -> None:
    for module in pkgutil.iter_modules(telemetry.__path__, f"{telemetry.__name__}."):
        importlib.import_module(module.name)
    importlib.import_module("savedmodel_bakery.serving.amqp.server")
    published = {
        (f"{metric.name}_total" if metric.type == "counter" else metric.name, metric.type)
        for metric in metrics.REGISTRY.collect()
        if not metric.name.startswith("process_")
    }
    assert published == {(name, kind) for name, kind, _ in rows(clone, "bakery_")}
    collectors = {collector for collector in metrics.REGISTRY._collector_to_names if hasattr(collector, "_labelnames")}
    labels = {f"{metric._name}{'_total' * isinstance(metric, Counter)}": metric._labelnames for metric in collectors}
    assert labels.items() <= {(name, labels) for name, _, labels in rows(clone, "bakery_")}
