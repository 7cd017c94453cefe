"""The load generator as a process, which reads one JSON object per line.

    python -m benchmarks.generator \
        '{"protocol": …, "ports": […], "base_path": …, "photos": {NAME: PATH}, "timeout_s": …}'

Prints `{"labels": {NAME: LABEL}}` after one request per photo. For each line
`{"photo": NAME, "callers": N, "seconds": S, "rate_per_s": R}` it then prints `client.load.report.summary` of that load,
with the first message of each error and the number of calls that were answered within `timeout_s` after they were due.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.processes import ServerStartError


class Generator:
    """Such a process; a context manager that ends it."""

    def __init__(
        self,
        *,
        protocol: str,
        ports: list[int],
        base_path: str,
        photos: dict[str, Path],
        log: Path,
        timeout_s: float = 120.0,
    ) -> None:
        target = {
            "protocol": protocol,
            "ports": ports,
            "base_path": base_path,
            "photos": {name: str(path) for name, path in photos.items()},
            "timeout_s": timeout_s,
        }
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.generator", json.dumps(target)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.labels: dict[str, str] = self._read()["labels"]

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def load(self, *, photo: str, callers: int, seconds: float, rate_per_s: float | None = None) -> dict[str, Any]:
        """Put load on the candidate and return the summary; without a rate, in a closed loop."""
        assert self._process.stdin
        order = {"photo": photo, "callers": callers, "seconds": seconds, "rate_per_s": rate_per_s}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._read()

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise ServerStartError(f"the load generator failed: {self._log.read_text().strip().rpartition(chr(10))[2]}")
        response: dict[str, Any] = json.loads(line)
        return response


def main(target: dict[str, Any]) -> None:
    """Read loads from stdin until it ends."""
    from benchmarks.targets import open_targets
    from savedmodel_bakery.client.load import generator, report

    photos = {name: Path(path).read_bytes() for name, path in target.pop("photos").items()}
    targets = open_targets(**target, photos=photos)
    print(json.dumps({"labels": {name: target.label for name, target in targets.items()}}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        plan = generator.Plan(order["callers"], duration_s=order["seconds"], rate_per_s=order["rate_per_s"])
        load = generator.generate(targets[order["photo"]].open_caller, plan)
        in_time = int((load.latencies_s[: len(load.ended_s)] <= target["timeout_s"]).sum())
        summary = report.summary(load, images=1) | {"messages": load.messages, "in_time": in_time}
        print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(json.loads(sys.argv[1]))
