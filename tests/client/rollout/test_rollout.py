"""Rollouts on servers with the rules of tensorflow_model_server: what is written, also when they fail or are killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from stored_versions import memory_store, write_version
from strict_servers import MODEL, StrictServer

from savedmodel_bakery.client.commands import rollout as module
from savedmodel_bakery.client.commands import rollout_options
from savedmodel_bakery.client.rollout import RolloutError, operations
from savedmodel_bakery.client.rollout import rollout as rollout_module
from savedmodel_bakery.client.rollout.config_file import ConfigFile
from savedmodel_bakery.client.rollout.evidence import Limits
from savedmodel_bakery.client.rollout.rollout import Rollout
from savedmodel_bakery.client.rollout.steps import Serving
from savedmodel_bakery.errors import ConnectionFailedError
from savedmodel_bakery.exits import run_command
from savedmodel_bakery.storage.publish import publish, published_versions
from savedmodel_bakery.wire.model_config import Specific


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers in memory need no time."""
    monkeypatch.setattr(rollout_module, "_PAUSE_S", 0.0)
    monkeypatch.setattr(rollout_module, "_NOTICE_S", -1.0)


def serving(*versions: int, **labels: int) -> Serving:
    return Serving(frozenset(versions), labels)


def read(path: Path) -> Serving:
    """Return what a config file says."""
    config = ConfigFile(path).model(MODEL)
    assert isinstance(config.policy, Specific)
    return Serving(config.policy.versions, dict(config.labels))


def state(server: StrictServer) -> Serving:
    return Serving(frozenset(server.available), server.labels)


class Killed(BaseException):
    """The process has ended."""


class Process:
    """A process that is killed after `live` was called this many times: then nothing has an effect any more."""

    def __init__(self, end: float = float("inf")) -> None:
        self._remaining = end

    def live(self) -> None:
        """Raise Killed from the chosen moment on."""
        if self._remaining <= 0:
            raise Killed
        self._remaining -= 1


class KillableFile(ConfigFile):
    """A config file that is written by a process."""

    process: Process

    def replace(self, text: str) -> None:
        """Replace the content, as long as the process lives; it may also be killed right after that."""
        self.process.live()
        super().replace(text)
        self.process.live()


class Place(NamedTuple):
    """A config file and the servers that use it."""

    path: Path
    servers: Sequence[StrictServer]
    is_polling: bool

    def rollout(
        self, process: Process | None = None, *, skip_failing: bool = False, report: Callable[[str], Any] = print
    ) -> Rollout:
        """Return a rollout, by a process that may be killed."""
        file = KillableFile(self.path)
        file.process = process or Process()
        for server in self.servers if process and not self.is_polling else ():
            server.before_reload = process.live
        servers: Any = self.servers
        return Rollout(
            file,
            MODEL,
            servers,
            by_reload=not self.is_polling,
            timeout_s=0.1,
            report=report,
            skip_failing=skip_failing,
        )


Make = Callable[..., Place]


@pytest.fixture(params=[False, True], ids=["sent", "polled"])
def is_polling(request: pytest.FixtureRequest) -> bool:
    """Whether servers read the file, or are sent it."""
    return bool(request.param)


@pytest.fixture
def make(tmp_path: Path, is_polling: bool) -> Make:
    """Write a config file, and return it with servers that serve what it says, as far as they can load it."""

    def make(now: Serving, *loadable: set[int]) -> Place:
        path = tmp_path / "models.config"
        versions = " ".join(f"versions: {version}" for version in sorted(now.versions))
        labels = " ".join(f'version_labels {{ key: "{name}" value: {value} }}' for name, value in now.labels.items())
        path.write_text(
            f'model_config_list {{ config {{ name: "m" base_path: "/none" model_platform: "tensorflow" {labels} '
            f"model_version_policy {{ specific {{ {versions} }} }} }} }}"
        )
        servers = [
            StrictServer(
                f"{name}.example",
                path,
                is_polling=is_polling,
                loadable=can_load,
                available=now.versions & can_load,
                labels={label: version for label, version in now.labels.items() if version in can_load},
            )
            for name, can_load in zip("abc", loadable, strict=False)
        ]
        return Place(path, servers, is_polling)

    return make


def start(rollout: Rollout, canary: int) -> None:
    operations.start(rollout, canary=canary, stable=None, base_path=None)


def promote(rollout: Rollout) -> None:
    operations.promote(rollout, with_goldens=False, base_path=None, photos=None, limits=Limits(0, 1))


ALL = {1, 2, 3}

STEPS = [
    pytest.param(lambda rollout: start(rollout, 2), serving(1), serving(1, 2, stable=1, canary=2), id="first start"),
    pytest.param(
        lambda rollout: start(rollout, 2), serving(1, stable=1), serving(1, 2, stable=1, canary=2), id="start"
    ),
    pytest.param(
        lambda rollout: start(rollout, 3),
        serving(1, 2, stable=2, previous=1),
        serving(2, 3, stable=2, canary=3),
        id="start after a promotion",
    ),
    pytest.param(promote, serving(1, 2, stable=1, canary=2), serving(1, 2, stable=2, previous=1), id="promote"),
    pytest.param(
        operations.roll_back, serving(1, 2, stable=1, canary=2), serving(1, stable=1), id="rollback of a canary"
    ),
    pytest.param(
        operations.roll_back, serving(1, 2, stable=2, previous=1), serving(1, stable=1), id="rollback of a promotion"
    ),
]


@pytest.mark.parametrize(("step", "now", "after"), STEPS)
def test_a_step_that_is_killed_at_any_moment_is_completed_by_the_same_command(
    make: Make, step: Callable[[Rollout], None], now: Serving, after: Serving
) -> None:
    """No configuration is ever refused, and the label `stable` always leads to a loaded version.

    Each round is killed one effect later than the one before; the last one is not killed.
    """
    was_killed, moment = True, 0
    while was_killed:
        place = make(now, ALL, ALL)
        try:
            step(place.rollout(Process(moment)))
        except Killed:
            for server in place.servers:
                server.before_reload = lambda: None
                server.pass_time()
                server.pass_time()
            is_complete = after == read(place.path) == state(place.servers[0]) == state(place.servers[1])
            try:
                step(place.rollout())
            except RolloutError:
                assert is_complete
        else:
            was_killed = False
        assert (after, after, after) == (read(place.path), *map(state, place.servers))
        assert ([], []) == tuple(server.refusals for server in place.servers)
        assert ([], []) == tuple(server.gaps for server in place.servers)
        moment += 1
    assert moment > 2


def test_a_rollback_leaves_a_server_that_cannot_load_the_previous_version_as_it_is(make: Make) -> None:
    """The other one is rolled back; the same command continues when the version can be loaded.

    If servers read the file, this one refuses it because of the label, so that it must be sent its configuration.
    """
    place = make(serving(1, 2, stable=2, previous=1), ALL, {2})
    good, bad = place.servers
    for _ in range(2):
        rollout = place.rollout(skip_failing=True)
        operations.roll_back(rollout)
        assert {bad.name} == rollout.failures.keys()
        assert "version 1" in str(rollout.failures[bad.name])
        assert (serving(1, stable=1), serving(1, stable=1)) == (read(place.path), state(good))
        assert (2, []) == (bad.labels["stable"], good.gaps + bad.gaps)
    bad.loadable.add(1)
    rollout = place._replace(is_polling=False).rollout(skip_failing=True)
    operations.roll_back(rollout)
    assert ({}, serving(1, stable=1), []) == (rollout.failures, state(bad), bad.gaps)


def test_a_rollback_does_not_need_the_version_that_it_removes(make: Make) -> None:
    """It has been loaded on the first server only."""
    place = make(serving(1, 2, stable=2, previous=1), ALL, {1})
    operations.roll_back(place.rollout())
    assert (serving(1, stable=1), serving(1, stable=1)) == tuple(map(state, place.servers))


def test_a_rollback_that_fails_everywhere_leaves_the_file_as_it_is(make: Make) -> None:
    place = make(serving(1, 2, stable=2, previous=1), {2}, {2})
    before, reports = place.path.read_text(), []
    with pytest.raises(RolloutError, match=r"^a\.example .*version 1"):
        operations.roll_back(place.rollout(skip_failing=True, report=reports.append))
    assert before == place.path.read_text()
    assert any(text.startswith("b.example ") for text in reports)
    assert [[], []] == [server.gaps for server in place.servers]


def test_a_server_without_the_stable_version_does_not_take_it_from_the_others(make: Make) -> None:
    place = make(serving(2, stable=2), ALL, {3})
    before = place.path.read_text()
    with pytest.raises(RolloutError, match=r"b\.example .*version 2"):
        start(place.rollout(), 3)
    good, _ = place.servers
    assert (before, []) == (place.path.read_text(), good.gaps)
    good.pass_time()
    assert serving(2, stable=2) == state(good)


def refuse(name: str) -> None:
    raise RolloutError(f"{name} did not accept the configuration: no")


def disconnect(name: str) -> None:
    raise ConnectionFailedError(f"cannot connect to {name}")


@pytest.mark.parametrize("is_polling", [False], indirect=True, ids=["sent"])
@pytest.mark.parametrize("now", [serving(1, 2, stable=1, canary=2), serving(1, 2, stable=2, previous=1)])
@pytest.mark.parametrize(("fail", "code"), [(refuse, 1), (disconnect, 3)], ids=["refused", "lost"])
def test_a_rollback_goes_on_after_a_server_that_fails(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    now: Serving,
    fail: Callable[[str], None],
    code: int,
) -> None:
    place = make(now, ALL, ALL, ALL)
    bad, *good = place.servers
    bad.before_reload = lambda: fail(bad.name)
    monkeypatch.setattr(rollout_options, "open_servers", lambda *_: place.servers)
    words = ["rollback", MODEL, "--config", str(place.path)]
    assert code == run_command(module.rollout, words)
    assert (now, [serving(1, stable=1)] * 2) == (state(bad), [state(server) for server in good])
    _, err = capsys.readouterr()
    skipped, error = err.splitlines()
    assert skipped.startswith("skipping a.example: ")
    assert "error: not rolled back: a.example; run the same command again when the cause is fixed" == error
    bad.before_reload = lambda: None
    assert 0 == run_command(module.rollout, words)
    assert serving(1, stable=1) == state(bad) == read(place.path)


@pytest.mark.parametrize("is_polling", [False], indirect=True, ids=["sent"])
def test_a_start_that_a_server_refuses_is_taken_back_on_all_servers(make: Make) -> None:
    """The one in the middle refuses every configuration from the labels on, also the former one."""
    place = make(serving(1, 2, stable=2, previous=1), ALL, ALL, ALL)
    before, reports, calls = place.path.read_text(), [], []
    bad = place.servers[1]

    def refuse_second() -> None:
        calls.append(1)
        if len(calls) > 1:
            refuse(bad.name)

    bad.before_reload = refuse_second
    with pytest.raises(RolloutError, match=r"b\.example did not accept"):
        start(place.rollout(report=reports.append), 3)
    assert before == place.path.read_text()
    for server in place.servers[0], place.servers[2]:
        server.pass_time()
        assert (serving(1, 2, stable=2, previous=1), []) == (state(server), server.gaps)
    assert reports[-1].startswith("b.example may still have the other configuration: ")


@pytest.mark.parametrize("is_polling", [False], indirect=True, ids=["sent"])
def test_status_names_a_version_that_a_server_lacks(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = make(serving(1, 2, stable=1), ALL, {1})
    monkeypatch.setattr(module, "open_servers", lambda *_: place.servers)
    assert 1 == run_command(module.rollout, ["status", MODEL, "--config", str(place.path)])
    expected = f"b.example differs from {place.path}: version 2 is unknown, not AVAILABLE\n"
    assert expected == capsys.readouterr().err
    place.servers[1].loadable.add(2)
    assert 1 == run_command(module.rollout, ["status", MODEL, "--config", str(place.path)])


def test_versions_are_pruned_from_the_bucket_that_the_file_names(tmp_path: Path) -> None:
    base = memory_store()
    for number in (1, 2, 3):
        publish(write_version(tmp_path / "source"), base, number)
    path = tmp_path / "models.config"
    path.write_text(f'model_config_list {{ config {{ name: "m" base_path: "{base}" model_platform: "tensorflow" }} }}')
    rollout = Rollout(ConfigFile(path), "m", [], by_reload=False, timeout_s=0.1, report=print)
    pruned = operations.prune(rollout, keep=1, base_path=None, is_trial=False)
    assert [f"{base}/1", f"{base}/2"] == [str(version) for version in pruned]
    assert {3} == published_versions(base).keys()
