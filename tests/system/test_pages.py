"""The pages print what they show, from an empty folder; RabbitMQ is a real one.

`make test-guides` and `make test-slow` run some others.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import differences, packages, pages_of
from rabbitmq import RabbitMQ

PAGES = pages_of("system")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_its_commands_print(clone: Path, tmp_path: Path, name: str) -> None:
    (folder := tmp_path / "empty").mkdir()
    if packages(PAGES[name]) == ["rabbitmq"]:
        with RabbitMQ(tmp_path / "rabbitmq") as broker:
            urls = {"BAKERY_AMQP_URL": broker.url(), "BAKERY_CLIENT_TARGET": broker.url()}
            different = differences(PAGES[name], clone, folder, urls)
    else:
        different = differences(PAGES[name], clone, folder)
    assert not different, different
