"""The load generator in a process of its own, told by lines of JSON what to do.

    python -m benchmarks.generator '{"asked": …, "ports": […], "servable": …, "photos": {NAME: PATH}}'

Prints `{"labels": {NAME: LABEL}}` when it has been answered about each photo. For each line
`{"photo": NAME, "callers": N, "seconds": S}` it then prints `client.load.report.summary`, with the CPU time it used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.processes import DidNotStart


class Generator:
    """Such a process; a context manager that ends it."""

    def __init__(self, *, asked: str, ports: list[int], servable: str, photos: dict[str, Path], log: Path) -> None:
        order = {"asked": asked, "ports": ports, "servable": servable, "photos": {n: str(p) for n, p in photos.items()}}
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.generator", json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.labels: dict[str, str] = self._read()["labels"]

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def load(self, *, photo: str, callers: int, seconds: float) -> dict[str, Any]:
        """Put load on the contestant, and wait for what comes of it."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"photo": photo, "callers": callers, "seconds": seconds}) + "\n")
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
            raise DidNotStart(f"no answer: {self._log.read_text().strip().rpartition(chr(10))[2]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main(order: dict[str, Any]) -> None:
    """Read orders from stdin until it ends."""
    from benchmarks.targets import open_callees
    from savedmodel_bakery.client.load import generator, report

    photos = {name: Path(path).read_bytes() for name, path in order["photos"].items()}
    callees = open_callees(order["asked"], ports=order["ports"], servable=order["servable"], photos=photos)
    print(json.dumps({"labels": {name: callee.label for name, callee in callees.items()}}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        plan = generator.Plan(wanted["callers"], duration_s=wanted["seconds"])
        load = generator.generate(callees[wanted["photo"]].open_caller, plan)
        answer = report.summary(load, images=1) | {"messages": load.messages}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(json.loads(sys.argv[1]))
