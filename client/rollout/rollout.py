"""Puts a change of the config file into effect on servers, step by step, and takes it back if that fails.

A server refuses a label of a version that is not AVAILABLE, and with it the whole configuration. So a version is loaded
first, and gets its label in a second configuration when every server has it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from savedmodel_bakery.client.errors import ClientError, ConnectionFailedError, DeadlineExceededError
from savedmodel_bakery.client.rollout import config_text
from savedmodel_bakery.client.rollout.config_file import ConfigFile
from savedmodel_bakery.client.rollout.errors import RolloutError
from savedmodel_bakery.client.rollout.servers import ModelServer, ServerState
from savedmodel_bakery.client.rollout.steps import LABELS, Serving
from savedmodel_bakery.wire.model_config import ModelConfig, Specific
from savedmodel_bakery.wire.status import Code

UNREACHABLE = (ConnectionFailedError, DeadlineExceededError)
"""The errors of a server that cannot be reached, or does not respond."""

_PAUSE_S = 0.2

_NOTICE_S = 15.0
"""How long a server that was sent a configuration may take to begin to load a version."""


class Rollout:
    """Changes the versions and labels of one model.

    Args:
        file: the config file, locked by this process.
        model: name of the model.
        servers: the servers that use the file.
        by_reload: send the configuration to the servers; otherwise they read the file themselves.
        timeout_s: how long to wait for the servers after each change of the file.
        report: is called with each message about the progress.

    Attributes:
        file: the config file.
        model: name of the model.
        servers: the servers.
        report: see above.
    """

    def __init__(
        self,
        file: ConfigFile,
        model: str,
        servers: Sequence[ModelServer],
        *,
        by_reload: bool,
        timeout_s: float,
        report: Callable[[str], object],
    ) -> None:
        self.file = file
        self.model = model
        self.servers = servers
        self._by_reload = by_reload
        self._timeout_s = timeout_s
        self.report = report

    def __str__(self) -> str:
        return f'model "{self.model}" in {self.file}'

    @property
    def base_path(self) -> Path:
        """The folder of the versions, as the file names it."""
        return self.file.model(self.model).folder

    def read(self) -> dict[str, ServerState]:
        """Return the state of each server, by name.

        Raises:
            ClientError: a server cannot be reached, or refuses.
        """
        labels = labels_of(self.file.model(self.model))
        return {server.name: server.read(self.model, labels) for server in self.servers}

    def serving(self) -> Serving:
        """Return what the file says; if its policy is not `specific`, with the versions that the servers serve.

        Raises:
            ClientError: see `read`.
        """
        config = self.file.model(self.model)
        if isinstance(config.policy, Specific):
            return Serving(config.policy.versions, config.labels)
        available = [state.available for state in self.read().values()]
        return Serving(frozenset().union(*available), config.labels)

    def differences(self) -> list[tuple[str, str]]:
        """Return how servers differ from the file: the name of a server, and a difference.

        Raises:
            ClientError: see `read`.
        """
        config = self.file.model(self.model)
        return [(name, found) for name, state in self.read().items() for found in differences(config, state)]

    def skip_unreachable_servers(self) -> list[ClientError]:
        """Leave out the servers that cannot be reached, and return their errors.

        Raises:
            ClientError: no server can be reached, or one refuses.
        """
        reachable: list[ModelServer] = []
        errors: list[ClientError] = []
        for server in self.servers:
            try:
                server.read(self.model)
            except UNREACHABLE as error:
                errors.append(error)
            else:
                reachable.append(server)
        if not reachable:
            raise errors[0]
        self.servers = reachable
        return errors

    def edit(self, serving: Serving) -> str:
        """Return the content of the file with what is to be served."""
        return config_text.edit_model(self.file.text, self.model, versions=serving.versions, labels=serving.labels)

    def move(self, target: Serving, *, former: str | None = None) -> None:
        """Change the file step by step, and return when each step is in effect on all servers.

        First, versions with labels are loaded. Then all labels are assigned, and at last versions are unloaded. Servers
        accept the former content until then.

        Args:
            target: what is to be served.
            former: the content of the file to put back if a version cannot be loaded or a label cannot be assigned.

        Raises:
            RolloutError: a server refuses the configuration, cannot load a version, or takes too long.
            ClientError: a server cannot be reached.
        """
        needed = frozenset(target.labels.values())
        loaded = self.serving().versions | needed
        with self._restoring(former):
            states = self.read()
            available = frozenset.intersection(*(state.available for state in states.values()))
            if needed - available:
                self.report(f"loading version {', '.join(map(str, sorted(needed - available)))}")
                labels = {label: version for label, version in target.labels.items() if version in available}
                self._apply(self.edit(Serving(loaded, labels)))
                self._wait_for_versions(needed, states)
            self.put_into_effect(self.edit(Serving(loaded, target.labels)))
        if loaded != target.versions:
            self.put_into_effect(self.edit(target))

    def put_into_effect(self, text: str | None = None) -> None:
        """Put a content of the file into effect, by default that which it has; errors are those of `move`."""
        self._apply(self.file.text if text is None else text)
        config = self.file.model(self.model)
        self._wait(lambda _, state: differences(config, state))

    @contextmanager
    def _restoring(self, former: str | None) -> Iterator[None]:
        """If the block fails or is interrupted, put the former content of the file back."""
        try:
            yield
        except BaseException:
            if former is not None and former != self.file.text:
                self._restore(former)
            raise

    def _restore(self, former: str) -> None:
        try:
            self.file.replace(former)
        except RolloutError as error:
            self.report(f"cannot put {self.file} back as it was: {error}")
            return
        self.report(f"{self.file} is as it was")
        for server in self.servers if self._by_reload else ():
            try:
                server.reload(config_text.parse(former), timeout_s=self._timeout_s)
            except (RolloutError, ClientError) as error:
                self.report(f"{server.name} may still have the other configuration: {error}")

    def _apply(self, text: str) -> None:
        if text != self.file.text:
            self.file.replace(text)
        for server in self.servers if self._by_reload else ():
            server.reload(config_text.parse(text), timeout_s=self._timeout_s)

    def _wait_for_versions(self, needed: frozenset[int], before: Mapping[str, ServerState]) -> None:
        """Return when versions are AVAILABLE on all servers, given the states before they were configured."""
        noticed_s = time.monotonic() + _NOTICE_S if self._by_reload else math.inf

        def find_problems(name: str, state: ServerState) -> list[str]:
            return _missing(needed, name, state, before[name] if time.monotonic() < noticed_s else None)

        self._wait(find_problems)

    def _wait(self, find_problems: Callable[[str, ServerState], Sequence[str]]) -> None:
        """Return when no server has a problem."""
        end_s = time.monotonic() + self._timeout_s
        labels = labels_of(self.file.model(self.model))
        for server in self.servers:
            while True:
                error: Exception
                try:
                    problems = find_problems(server.name, server.read(self.model, labels))
                    if not problems:
                        break
                    error = RolloutError(f"{server.name} after {self._timeout_s:g} s: {'; '.join(problems)}")
                except UNREACHABLE as exc:
                    error = exc
                if time.monotonic() > end_s:
                    raise error
                time.sleep(_PAUSE_S)


def labels_of(config: ModelConfig) -> list[str]:
    """Return the labels to look for on servers: those of a model, and those that rollouts assign."""
    return sorted({*filter(None, config.labels), *LABELS})


def differences(config: ModelConfig, state: ServerState) -> list[str]:
    """Return how a server differs from the configuration of a model; empty if it does not."""
    found = []
    for label in labels_of(config):
        wanted, actual = config.labels.get(label), state.labels.get(label)
        if actual != wanted:
            found.append(
                f"label {label} is {'not in effect' if actual is None else f'version {actual}'}, "
                f"but {'has been removed' if wanted is None else f'must be version {wanted}'}"
            )
    if isinstance(config.policy, Specific):
        found += [f"version {version} is still loaded" for version in sorted(state.available - config.policy.versions)]
    return found


def _missing(needed: frozenset[int], name: str, state: ServerState, before: ServerState | None) -> list[str]:
    """Return the versions that are not AVAILABLE yet, with their states.

    Args:
        needed: the versions that must be AVAILABLE.
        name: of the server.
        state: the server's.
        before: that before the versions were configured, if the server may not have noticed yet: then a version that
            could not be loaded before does not count as failed.

    Raises:
        RolloutError: a version could not be loaded.
    """
    missing = []
    for version in sorted(needed - state.available):
        status = state.status_of(version)
        reason = f": {status.code.name}: {status.message}" if status is not None and status.code is not Code.OK else ""
        if status is not None and status.state == "END" and reason and not (before and status in before.versions):
            raise RolloutError(f"{name} cannot load version {version}{reason}")
        missing.append(f"version {version} is {'unknown' if status is None else status.state}, not AVAILABLE{reason}")
    return missing
