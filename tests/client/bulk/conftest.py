"""Fixtures for the tests of bulk jobs."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import canned_models
import pytest

from savedmodel_bakery.client.commands.cli import main
from savedmodel_bakery.wire.status import Code, StatusError

PREFIXES = {1: "error: ", 2: "Error: ", 3: "error: "}
"""How the last line begins, by exit code."""

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `bulk` in an empty folder and return the exit code and the last line on stderr, without `error: `."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, stdin: bytes = b"") -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main(["bulk", "--port", str(peer.grpc_port), *map(str, arguments)])
        printed = capsys.readouterr()
        assert "" == printed.out
        code, line = caught.value.code or 0, printed.err.splitlines()[-1]
        prefix = PREFIXES.get(code, "")
        assert line.startswith(prefix)
        return code, line.removeprefix(prefix)

    return run


RefuseRuns = Callable[[Callable[[int, list[bytes]], Code | None]], None]


@pytest.fixture
def refuse_runs(monkeypatch: pytest.MonkeyPatch) -> RefuseRuns:
    """Make the canned server refuse runs with a code, depending on their number and images."""
    model = canned_models.MODELS["efficientnet_lite0"]
    run_model = model.run

    def refuse(code_of: Callable[[int, list[bytes]], Code | None]) -> None:
        count = 0

        def run(signature: str, inputs: dict[str, Any]) -> Any:
            nonlocal count
            count += 1
            code = code_of(count, inputs["image"].tolist())
            if code is not None:
                raise StatusError(code, "not this one")
            return run_model(signature, inputs)

        monkeypatch.setattr(model, "run", run)

    return refuse
