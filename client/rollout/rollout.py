"""Puts a change of the config file into effect on servers, step by step, and takes it back if that fails.

A server refuses a label of a version that is not AVAILABLE, and with it the whole configuration. So a version is loaded
first, and gets its label in a second configuration when every server has it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from savedmodel_bakery.client.rollout import RolloutError, config_text
from savedmodel_bakery.client.rollout.config_file import ConfigFile
from savedmodel_bakery.client.rollout.servers import (
    ModelServer,
    ServerState,
    check_not_failed,
    find_differences,
    find_missing,
    labels_of,
)
from savedmodel_bakery.client.rollout.steps import Serving
from savedmodel_bakery.errors import ClientError, ConnectionFailedError, DeadlineExceededError
from savedmodel_bakery.storage.store import Store, open_store
from savedmodel_bakery.wire.model_config import Specific

UNREACHABLE = (ConnectionFailedError, DeadlineExceededError)
"""The errors of a server that cannot be reached, or does not respond."""

_PAUSE_S = 0.2

_NOTICE_S = 15.0
"""How long a server that was sent a configuration may take to begin to load a version."""

_Result = TypeVar("_Result")


@dataclass(eq=False)
class Rollout:
    """Changes the versions and labels of one model, in a config file that this process has locked.

    With `by_reload` the configuration is sent to the servers; otherwise they read the file themselves. `timeout_s`
    limits the wait for them after each change. With `skip_failing` a rollout goes on without the servers that fail,
    unless all do; their errors are in `failures`. Other ClientErrors are raised.
    """

    file: ConfigFile
    model: str
    servers: Sequence[ModelServer]
    by_reload: bool
    timeout_s: float
    report: Callable[[str], object]
    skip_failing: bool = False
    failures: dict[str, Exception] = field(default_factory=dict, init=False)

    def __str__(self) -> str:
        return f'model "{self.model}" in {self.file}'

    @property
    def base_path(self) -> Path | Store:
        """The folder of the versions, as the file names it. Raises PublishError for a URL that cannot be used."""
        config = self.file.model(self.model)
        return open_store(config.base_path) if config.is_url else config.folder

    def read(self) -> dict[str, ServerState]:
        """Return the state of each server, by name."""
        labels = labels_of(self.file.model(self.model))
        return self._on_each_server(lambda server: server.read(self.model, labels))

    def serving(self) -> Serving:
        """Return what the file says; if its policy is not `specific`, with the versions that the servers serve."""
        config = self.file.model(self.model)
        if isinstance(config.policy, Specific):
            versions = config.policy.versions
        else:
            versions = frozenset().union(*(state.available for state in self.read().values()))
        return Serving(versions | frozenset(config.labels.values()), config.labels)

    def differences(self) -> list[tuple[str, str]]:
        """Return how servers differ from the file: the name of a server, and a difference."""
        config = self.file.model(self.model)
        return [(name, found) for name, state in self.read().items() for found in find_differences(config, state)]

    def edit(self, serving: Serving) -> str:
        """Return the content of the file with what is to be served."""
        return config_text.edit_model(self.file.text, self.model, versions=serving.versions, labels=serving.labels)

    def load(self, target: Serving) -> None:
        """Load the versions that have labels in `target`, and return when they are AVAILABLE. Labels stay the same."""
        needed = frozenset(target.labels.values())
        before = self.read()
        missing = needed - _available_everywhere(before)
        if not missing:
            return
        self.report(f"loading version {', '.join(map(str, sorted(missing)))}")
        now = self.serving()
        self.file.replace(self.edit(Serving(now.versions | needed, now.labels)))
        if self.by_reload:
            self._on_each_server(self._send_acceptable)
        noticed_s = time.monotonic() + _NOTICE_S if self.by_reload else math.inf

        def find_problems(name: str, state: ServerState) -> list[str]:
            check_not_failed(needed, name, state, before[name] if time.monotonic() < noticed_s else None)
            return find_missing(needed, state)

        self._wait(find_problems)

    def acceptable(self, targets: Sequence[Serving]) -> list[Serving]:
        """Return the targets without those before the last that have a label of a version that a server lacks."""
        *first, last = targets
        available = _available_everywhere(self.read())
        return [target for target in first if available.issuperset(target.labels.values())] + [last]

    def put_into_effect(self, target: Serving | None = None) -> None:
        """Write the file, by default as it is, and wait until it is in effect. Labels must be of AVAILABLE versions."""
        if target is not None:
            self.file.replace(self.edit(target))
        if self.by_reload:
            message = config_text.parse(self.file.text)
            self._on_each_server(lambda server: server.reload(message, timeout_s=self.timeout_s))
        config = self.file.model(self.model)
        self._wait(lambda _, state: find_differences(config, state))

    @contextmanager
    def restoring(self, former: str) -> Iterator[None]:
        """If the block fails or is interrupted, put a former content of the file back."""
        try:
            yield
        except BaseException:
            if former != self.file.text:
                self._restore(former)
            raise

    def _restore(self, former: str) -> None:
        try:
            self.file.replace(former)
        except RolloutError as error:
            self.report(f"cannot put {self.file} back as it was: {error}")
            return
        self.report(f"{self.file} is as it was")
        for server in self.servers if self.by_reload else ():
            try:
                self._send_acceptable(server)
            except (RolloutError, ClientError) as error:
                self.report(f"{server.name} may still have the other configuration: {error}")

    def _send_acceptable(self, server: ModelServer) -> None:
        """Send the file, but leave a label as it is on a server that lacks the new version: it would refuse it."""
        message = config_text.parse(self.file.text)
        [config] = (config for config in message.model_config_list.config if config.name == self.model)
        labels = config.version_labels
        state = server.read(self.model, labels_of(self.file.model(self.model)))
        for label in [label for label, version in labels.items() if version not in state.available]:
            del labels[label]
            if label in state.labels:
                labels[label] = state.labels[label]
        if config.model_version_policy.HasField("specific"):
            versions = config.model_version_policy.specific.versions
            versions.extend(sorted({*labels.values()} - {*versions}))
        server.reload(message, timeout_s=self.timeout_s)

    def _on_each_server(self, act: Callable[[ModelServer], _Result]) -> dict[str, _Result]:
        """Return the results by the name of the server; skip those that fail, if the rollout may and not all do."""
        results: dict[str, _Result] = {}
        failures: dict[str, Exception] = {}
        for server in self.servers:
            try:
                results[server.name] = act(server)
            except (RolloutError, ClientError) as error:
                if not self.skip_failing:
                    raise
                failures[server.name] = error
        if not results:
            first, *others = failures.values()
            for other in others:
                self.report(str(other))
            raise first
        for name, failure in failures.items():
            self.report(f"skipping {name}: {failure}")
        self.failures |= failures
        self.servers = [server for server in self.servers if server.name in results]
        return results

    def _wait(self, find_problems: Callable[[str, ServerState], Sequence[str]]) -> None:
        """Return when no server has a problem."""
        end_s = time.monotonic() + self.timeout_s
        labels = labels_of(self.file.model(self.model))

        def wait_for(server: ModelServer) -> None:
            while True:
                error: Exception
                try:
                    problems = find_problems(server.name, server.read(self.model, labels))
                    if not problems:
                        return
                    error = RolloutError(f"{server.name} after {self.timeout_s:g} s: {'; '.join(problems)}")
                except UNREACHABLE as exc:
                    error = exc
                if time.monotonic() > end_s:
                    raise error
                time.sleep(_PAUSE_S)

        self._on_each_server(wait_for)


def _available_everywhere(states: Mapping[str, ServerState]) -> frozenset[int]:
    return frozenset.intersection(*(state.available for state in states.values()))
