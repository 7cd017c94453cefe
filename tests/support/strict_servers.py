"""Model servers in memory that follow tensorflow_model_server's rules on labels and versions, with its default flags.

A configuration is refused as a whole if one of its labels names a version that is not AVAILABLE at that moment.
Otherwise its labels are in effect at once, and its versions are loaded and unloaded later. A version is unloaded only
while another one that is wanted is AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from savedmodel_bakery.client.calls import VersionStatus
from savedmodel_bakery.client.rollout import RolloutError
from savedmodel_bakery.client.rollout.config_text import parse
from savedmodel_bakery.client.rollout.servers import ServerState
from savedmodel_bakery.wire.model_config import Specific, parse_config
from savedmodel_bakery.wire.status import Code

MODEL = "m"


class StrictServer:
    """A server of the model `m`, in place of a ModelServer.

    Args:
        name: its name.
        path: the config file.
        is_polling: read the file before each answer, instead of being sent it.
        loadable: the versions that can be loaded.
        available: the versions that are loaded.
        labels: the labels in effect.

    Attributes:
        refusals: why configurations were refused.
        gaps: the labels in effect, each time that `stable` was lost or led to no loaded version.
        before_reload: is called before a configuration is taken; it may raise the error of the call.
    """

    can_reload = True

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        is_polling: bool,
        loadable: Iterable[int],
        available: Iterable[int],
        labels: Mapping[str, int],
    ) -> None:
        self.name = name
        self.loadable = set(loadable)
        self.labels = dict(labels)
        self.refusals: list[str] = []
        self.gaps: list[dict[str, int]] = []
        self.before_reload: Callable[[], object] = lambda: None
        self._path = path
        self._is_polling = is_polling
        self._states = dict.fromkeys(available, "AVAILABLE")
        self._wanted: frozenset[int] = frozenset(available)

    @property
    def available(self) -> set[int]:
        """The loaded versions."""
        return {version for version, state in self._states.items() if state == "AVAILABLE"}

    def read(self, _model: str, labels: Iterable[str] = ()) -> ServerState:
        """Return the state, after some time has passed."""
        self.pass_time()
        versions = [
            VersionStatus(version, state, *((Code.NOT_FOUND, "no such file") if state == "END" else (Code.OK, "")))
            for version, state in sorted(self._states.items(), reverse=True)
        ]
        resolved = {label: self.labels[label] for label in labels if self.labels.get(label) in self.available}
        return ServerState(versions, resolved)

    def reload(self, message: Any, *, timeout_s: float) -> None:
        """Take a configuration, or refuse it."""
        assert timeout_s > 0
        self.before_reload()
        config = parse_config(message)[MODEL]
        for version in config.labels.values():
            if version not in self.available:
                self.refusals.append(f"label of version {version}, which is not AVAILABLE")
                raise RolloutError(f"{self.name} did not accept the configuration: {self.refusals[-1]}")
        had_stable = "stable" in self.labels
        self.labels = dict(config.labels)
        assert isinstance(config.policy, Specific)
        self._wanted = config.policy.versions
        self._note_gap(had_stable)

    def pass_time(self) -> None:
        """Poll the file, then load and unload."""
        if self._is_polling:
            with suppress(RolloutError):
                self.reload(parse(self._path.read_text()), timeout_s=1)
        for version in self._wanted:
            if self._states.get(version) == "LOADING":
                self._states[version] = "AVAILABLE" if version in self.loadable else "END"
            elif version not in self._states or (self._states[version] == "END" and version in self.loadable):
                self._states[version] = "LOADING"
        if not self._wanted or self.available & self._wanted:
            self._states = {version: state for version, state in self._states.items() if version in self._wanted}
        self._note_gap("stable" in self.labels)

    def close(self) -> None:
        """Do nothing, as there is no connection."""

    def _note_gap(self, had_stable: bool) -> None:
        if had_stable and self.labels.get("stable") not in self.available:
            self.gaps.append(self.labels)
