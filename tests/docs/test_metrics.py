"""docs/reference/metrics.md lists every metric of the server, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import Counter, Histogram

from savedmodel_bakery.serving.telemetry import metrics


def test_the_page_lists_every_metric_with_its_type_and_labels(clone: Path) -> None:
    metrics_of_the_code = {
        (re.sub(r"\W", ":", value._documentation), value._type, value._labelnames)
        for value in vars(metrics).values()
        if isinstance(value, (Counter, Histogram))
    }
    page = (clone / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(:tensorflow:\S+)` \| (\w+) \| (.+?) \| \S.* \|$", page, re.MULTILINE)
    assert metrics_of_the_code == {(name, kind, tuple(re.findall("`(.+?)`", labels))) for name, kind, labels in rows}


def test_the_metrics_of_the_code_are_those_that_are_published() -> None:
    published = set(re.findall(rb"^# TYPE (\S+)", metrics.page(), re.MULTILINE))
    named = {metric for metric in vars(metrics).values() if isinstance(metric, (Counter, Histogram))}
    assert len(published) == len(named)
