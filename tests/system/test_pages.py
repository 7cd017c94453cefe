"""The pages of the documentation that need Debian packages print what they show; RabbitMQ is a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import differences
from rabbitmq import RabbitMQ

DOCS = Path(__file__).parent.parent.parent / "docs"
NEEDS_DEBIAN = "<!-- needs: debian -->"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [str(path.relative_to(DOCS)) for path in sorted(DOCS.rglob("*.md")) if NEEDS_DEBIAN in path.read_text()]
)
def test_the_page_shows_what_its_commands_print(clone: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with RabbitMQ(tmp_path / "rabbitmq") as broker:
        urls = {"BAKERY_AMQP_URL": broker.url(), "BAKERY_CLIENT_TARGET": broker.url()}
        different = differences((DOCS / name).read_text(), clone, folder, urls)
    assert not different, different
