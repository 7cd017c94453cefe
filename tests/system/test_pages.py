"""The pages print what they show, from an empty folder; RabbitMQ is a real one.

`make test-guides` and `make test-slow` run some others. What several pages bake or train is made once and copied.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import differences, packages, pages_of
from rabbitmq import RabbitMQ

PAGES = pages_of("system")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_its_commands_print(
    clone: Path, lite0: Path, flowers: Path, tmp_path: Path, name: str
) -> None:
    (folder := tmp_path / "empty").mkdir()
    if packages(PAGES[name]) == ["rabbitmq"]:
        with RabbitMQ(tmp_path / "rabbitmq") as broker:
            urls = {"BAKERY_AMQP_URL": broker.url(), "BAKERY_CLIENT_TARGET": broker.url()}
            different = differences(PAGES[name], clone, folder, urls, lite0=lite0, flowers=flowers)
    else:
        different = differences(PAGES[name], clone, folder, lite0=lite0, flowers=flowers)
    assert not different, different
