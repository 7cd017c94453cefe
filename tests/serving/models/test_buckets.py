"""Models in a bucket are served from copies, which follow the bucket and the version policy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stored_versions import memory_store, write_version
from waiting import wait_until

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models.buckets import Buckets, check_reachable
from savedmodel_bakery.serving.models.lifecycle import Lifecycle
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, State
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.models.version_threads import LifecycleOptions
from savedmodel_bakery.storage.publish import publish, remove
from savedmodel_bakery.storage.store import Store
from savedmodel_bakery.wire.model_config import All, Latest, ModelConfig, Policy, Specific
from savedmodel_bakery.wire.status import StatusError

VARIABLES = "variables/variables.index"


class Server:
    """A running lifecycle with the model `m` in a bucket, which has versions 1 and 2; only copies can be loaded."""

    def __init__(self, root: Path, base: Store) -> None:
        self.cache, self.base = root / "cache", base
        self.loaded: list[int] = []
        self.registry = Registry()
        options = LifecycleOptions(poll_wait_s=0.01, max_load_retries=0, cache_folder=self.cache)
        self.lifecycle = Lifecycle(self.registry, self._load, options)

    def _load(self, name: str, version: int, path: Path) -> Servable:
        assert path.is_relative_to(self.cache)
        assert (path / "saved_model.pb").is_file()
        assert not self.loaded or self.registry.available("m"), "the model was not served for a moment"
        self.loaded.append(version)
        runtime: Any = SimpleNamespace(close=lambda: None)
        return Servable(name, version, runtime)

    def start(self, policy: Policy) -> None:
        self.lifecycle.start({"m": ModelConfig("m", self.base.url, policy)})

    def apply(self, policy: Policy) -> None:
        self.lifecycle.apply({"m": ModelConfig("m", self.base.url, policy)})

    def wait_for(self, *versions: int) -> None:
        """Wait until these versions are served, and the cache has no others."""
        expected = (set(versions), [str(version) for version in versions])
        wait_until(lambda: expected == self._state(), describe=lambda: (expected, self._state()))

    def _state(self) -> tuple[set[int], list[str]]:
        return self.registry.available("m"), sorted(path.name for path in self.cache.glob("*/[0-9]*"))


@pytest.fixture
def base(tmp_path: Path) -> Store:
    base = memory_store()
    for number in (1, 2):
        publish(write_version(tmp_path / "source"), base, number)
    return base


@pytest.fixture
def make_server(tmp_path: Path, base: Store) -> Iterator[Callable[[], Server]]:
    servers: list[Server] = []

    def make() -> Server:
        servers.append(Server(tmp_path, base))
        return servers[-1]

    yield make
    for server in servers:
        server.lifecycle.stop()


@pytest.fixture
def server(make_server: Callable[[], Server]) -> Server:
    return make_server()


def test_newer_versions_are_served_and_older_ones_if_these_are_removed(server: Server, tmp_path: Path) -> None:
    server.start(Latest())
    server.wait_for(2)
    server.base.create(f"4/{VARIABLES}", b"an unfinished upload")
    publish(tmp_path / "source", server.base, 3)
    server.wait_for(3)
    remove(server.base.below("3"))
    server.wait_for(2)
    remove(server.base.below("2"))
    server.wait_for(1)
    assert [2, 3, 2, 1] == server.loaded


def test_the_policy_selects_the_versions_that_are_copied(server: Server) -> None:
    server.start(Specific(frozenset([1])))
    server.wait_for(1)
    server.apply(Specific(frozenset([2, 7])))
    server.wait_for(2)
    server.apply(All())
    server.wait_for(1, 2)
    server.apply(Latest(1))
    server.wait_for(2)


def test_a_version_that_cannot_be_copied_is_reported_and_the_served_one_stays(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.start(Latest())
    publish(tmp_path / "source", server.base, 3).remove(VARIABLES)

    def reasons() -> list[str]:
        statuses = server.registry.statuses(ModelChoice("m", 3)) if server.registry._missing["m"] else []
        return [str(status.error) for status in statuses if status.state is State.START and status.error]

    wait_until(lambda: reasons() != [])
    reason = f"{server.base}/3 is damaged: {VARIABLES} is missing"
    assert [f"FAILED_PRECONDITION: {reason}"] == reasons()
    server.wait_for(2)
    server.base.create(f"3/{VARIABLES}", b"index")
    server.wait_for(3)
    assert 1 == sum(f"model m: {reason}" == record.getMessage() for record in caplog.records)


def test_a_bucket_without_a_complete_version_is_waited_for_and_changes_nothing(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.start(Latest())
    for number in ("1", "2"):
        remove(server.base.below(number))
    wait_until(lambda: f"model m: no complete version in {server.base}" in caplog.messages)
    server.wait_for(2)


def test_copies_of_an_earlier_process_are_used_if_they_are_those_of_the_bucket(
    make_server: Callable[[], Server],
) -> None:
    first = make_server()
    first.start(All())
    first.wait_for(1, 2)
    first.lifecycle.stop()
    first.lifecycle._scanner.buckets._cache_lock.close()
    copies = {path.name: path for path in first.cache.glob("*/[0-9]")}
    (copies["1"] / VARIABLES).write_text("damaged")
    kept = copies["2"].stat().st_ino
    other = write_version(first.cache / f"gone-{'0' * 16}" / "1")
    (other / "assets.extra" / "manifest.json").touch()
    second = make_server()
    second.start(All())
    second.wait_for(1, 2)
    assert "index" == (copies["1"] / VARIABLES).read_text()
    assert kept == copies["2"].stat().st_ino
    assert not other.parent.exists()


def test_a_reload_states_why_a_model_did_not_become_available(server: Server) -> None:
    server.lifecycle.start({})
    missing = memory_store()
    with pytest.raises(StatusError, match=rf"m: model m: no complete version in {missing}$"):
        server.lifecycle.reload({"m": ModelConfig("m", missing.url)}, RequestContext(timeout_s=1))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://", "INVALID_ARGUMENT: base path of model m: invalid URL 's3://': must be the URL of a folder"),
        ("hfds://host/m", "INVALID_ARGUMENT: base path of model m: cannot open hfds://host/m: Protocol not known: hf"),
        ("gs://bucket/m", "UNIMPLEMENTED: base path of model m: gs:// needs gcsfs, which is not installed; try: pip"),
    ],
    ids=["no folder", "unknown scheme", "missing package"],
)
def test_an_unusable_url_is_an_error_without_a_request(
    tmp_path: Path, url: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    models = {"m": ModelConfig("m", url)}
    for check in (check_reachable, Buckets(tmp_path, lambda: None).check):
        with pytest.raises(StatusError) as caught:
            check(models)
        assert str(caught.value).startswith(message)


def test_a_cache_folder_has_one_server(tmp_path: Path, base: Store) -> None:
    models = {"m": ModelConfig("m", base.url)}
    first = Buckets(tmp_path, lambda: None)
    first.check(models)
    with pytest.raises(StatusError, match=f"{tmp_path} is the cache of another server: choose another with --model_"):
        Buckets(tmp_path, lambda: None).check(models)
    Buckets(tmp_path, lambda: None).check({"m": ModelConfig("m", "/models/m")})
    for unusable in ("/dev/null", "/proc"):  # no folder, and one that can be locked only
        message = f"^FAILED_PRECONDITION: cannot use {unusable} as cache: .*; choose anoth"
        with pytest.raises(StatusError, match=message):
            Buckets(Path(unusable), lambda: None).check(models)


def test_a_server_of_local_folders_does_not_import_fsspec() -> None:
    code = "import sys; import savedmodel_bakery.serving.models.buckets; sys.exit('fsspec' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
