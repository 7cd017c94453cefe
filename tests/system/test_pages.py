"""The pages print what they show, from an empty folder; RabbitMQ is a real one.

`make test-guides` and `make test-slow` run some others.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import differences, packages, pages_of
from rabbitmq import RabbitMQ

PAGES = pages_of("system")
BAKES = {"explanation/verification.md"}
"""Pages about bakes; the others copy the bake of EfficientNet-Lite0 that all tests share."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_its_commands_print(clone: Path, lite0: Path, tmp_path: Path, name: str) -> None:
    (folder := tmp_path / "empty").mkdir()
    shared = None if name in BAKES else lite0
    if packages(PAGES[name]) == ["rabbitmq"]:
        with RabbitMQ(tmp_path / "rabbitmq") as broker:
            urls = {"BAKERY_AMQP_URL": broker.url(), "BAKERY_CLIENT_TARGET": broker.url()}
            different = differences(PAGES[name], clone, folder, urls, lite0=shared)
    else:
        different = differences(PAGES[name], clone, folder, lite0=shared)
    assert not different, different
