"""Finds the versions that are wanted now, of models on disk and in buckets. Never waits for a bucket."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from savedmodel_bakery.serving.models.buckets import Buckets
from savedmodel_bakery.serving.models.storage import wanted_versions
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import StatusError

logger = logging.getLogger(__name__)


class Scanner:
    """Scans the base paths of models, and logs each problem once.

    Keeps the results of the last scan, by model: `problems`, and `missing`, the versions that have not been copied from
    a bucket yet, each with the error of the last attempt.
    """

    def __init__(self, cache_folder: Path, on_copies: Callable[[], None]) -> None:
        self.problems: dict[str, str] = {}
        self.missing: dict[str, Mapping[int, StatusError | None]] = {}
        self.buckets = Buckets(cache_folder, on_copies)

    def scan(
        self, models: Mapping[str, ModelConfig], last: Mapping[str, dict[int, Path]]
    ) -> dict[str, dict[int, Path]]:
        """Return the wanted versions by model; those of the `last` scan for a base path that can't be listed."""
        wanted: dict[str, dict[int, Path]] = {}
        problems: dict[str, str] = {}
        missing: dict[str, Mapping[int, StatusError | None]] = {}
        for name, config in models.items():
            try:
                if config.is_url:
                    copies = self.buckets.find(config)
                    missing[name] = copies.missing
                    if copies.problem:
                        problems[name] = copies.problem
                    if copies.folders is None:
                        wanted[name] = last.get(name, {})
                        continue
                    wanted[name] = copies.folders
                else:
                    wanted[name] = wanted_versions(config)
            except StatusError as error:
                wanted[name] = last.get(name, {})
                problems[name] = f"FileSystemStoragePathSource encountered a filesystem access error: {error.message}"
            else:
                if not wanted[name]:
                    problems[name] = (
                        f"No versions of servable {name} found under base path {config.base_path}. Did you forget to "
                        "name your leaf directory as a number (eg. '/1/')?"
                    )
        for name, problem in problems.items():
            if problem != self.problems.get(name):  # not at every scan
                logger.warning("%s", problem)
        self.problems, self.missing = problems, missing
        return wanted
