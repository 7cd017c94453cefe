"""The examples in the docstrings of public names do what they show."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from amqp_worker import WorkerProcess
from canned_server import Peer
from rabbitmq import RabbitMQ

import savedmodel_bakery
from savedmodel_bakery import Client, Recipe

pytestmark = pytest.mark.system

WITH_EXAMPLES = (
    "AmqpClient",
    "AsyncAmqpClient",
    "AsyncClient",
    "Client",
    "LocalTransport",
    "Recipe",
    "bake",
    "to_srgb",
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples_of(name: str) -> dict[str, doctest.DocTest]:
    """Return the examples of a public name and its methods, by the names of what they explain."""
    target = getattr(savedmodel_bakery, name)
    methods = inspect.getmembers(target, callable) if inspect.isclass(target) else []
    documented = {name: target, **{f"{name}.{method}": value for method, value in methods}}
    tests = {title: docstring_test(title, value) for title, value in documented.items()}
    return {title: test for title, test in tests.items() if test.examples}


def docstring_test(title: str, target: Any) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(inspect.getdoc(target) or "", {}, title, None, None)


def run(test: doctest.DocTest, replace: Callable[[str], str] = str) -> str:
    """Run an example and return what differs."""
    for example in test.examples:
        example.source = replace(example.source)
    output: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=output.append)
    return "".join(output)


@pytest.fixture
def workplace(lite0: Path, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a baked model and the example photos."""
    (tmp_path / "saved_model").mkdir()
    (tmp_path / "saved_model" / "efficientnet_lite0").symlink_to(lite0)
    (tmp_path / "examples").symlink_to(clone / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def grpc_port() -> Iterator[int]:
    """The port of a server with canned models."""
    peer = Peer()
    with peer.serve_grpc() as port:
        yield port
        peer.released.set()


def test_the_main_names_have_examples() -> None:
    assert {*WITH_EXAMPLES} <= {name for name in savedmodel_bakery.__all__ if examples_of(name)}
    for method in (Client.answer, Client.classify, Client.predict, Recipe.from_toml, Recipe.with_):
        assert docstring_test("", method).examples


@pytest.mark.usefixtures("workplace")
def test_the_examples_are_right(grpc_port: int) -> None:
    names = (name for name in WITH_EXAMPLES if name != "bake" and "Amqp" not in name)
    tests = {title: test for name in names for title, test in examples_of(name).items()}
    different = "".join(run(test, lambda code: code.replace("8500", str(grpc_port))) for test in tests.values())
    assert not different, different


def test_the_examples_of_clients_of_workers_are_right(broker: RabbitMQ, start: Callable[..., WorkerProcess]) -> None:
    start()
    tests = [examples_of(name)[name] for name in ("AmqpClient", "AsyncAmqpClient")]
    url = "amqp://guest:guest@127.0.0.1/"
    different = "".join(run(test, lambda code: code.replace(url, broker.url())) for test in tests)
    assert not different, different


def test_the_example_of_bake_is_right(flowers: Path, workplace: Path) -> None:
    for file in flowers.iterdir():
        (workplace / file.name).symlink_to(file)
    [test] = examples_of("bake").values()
    different = run(test)
    assert not different, different
