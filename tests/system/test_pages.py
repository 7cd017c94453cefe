"""The pages print what they show, from an empty folder; RabbitMQ is a real one.

A program named tensorflow_model_server is on the PATH, as it may be on a user's machine. It refuses our flags.

`make test-guides` and `make test-slow` run some others. What several pages bake or train is made once and copied.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
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
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tensorflow_model_server").symlink_to(clone / "tests" / "support" / "stub_model_server")
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(tmp_path / "bin"), os.environ["PATH"]])
    }
    with ExitStack() as stack:
        if packages(PAGES[name]) == ["rabbitmq"]:
            broker = stack.enter_context(RabbitMQ(tmp_path / "rabbitmq"))
            environment |= {"BAKERY_AMQP_URL": broker.url(), "BAKERY_CLIENT_TARGET": broker.url()}
        different = differences(PAGES[name], clone, folder, environment, lite0=lite0, flowers=flowers)
    assert not different, different
