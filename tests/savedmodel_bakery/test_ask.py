"""`bakery ask --local` prints what `bakery ask` prints of a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import colour_profiles
import numpy as np
import pytest
from PIL import Image
from task_models import detector, meter

from savedmodel_bakery.command import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `bakery ask` in a folder with two photos, and return its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("good.jpg", "bad.jpg"):
        Path(name).write_bytes(name.encode())

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["ask", *arguments])
        printed = capsys.readouterr()
        return caught.value.code or 0, printed.out, printed.err

    return run


def test_a_model_runs_without_a_server(run: Run, tmp_path: Path) -> None:
    detector(tmp_path / "detector", 3)
    code, out, err = run("--local", "detector", "good.jpg", "bad.jpg")
    lines = ["1.0\t2.0\t30.0\t14.0\tcat\t0.750", "0.0\t0.5\t10.0\t19.0\tdog\t0.500"]
    assert (1, [f"good.jpg\t{line}" for line in lines], "bad.jpg: no image\n") == (code, out.splitlines(), err)
    code, out, _ = run("--local", "detector", "--json", "good.jpg")
    row = json.loads(out)
    assert (0, "detector", 3) == (code, row["model"], row["version"])
    code, _, err = run("--local", "detector", "--version", "4", "good.jpg")
    assert (1, "error: NOT_FOUND: Servable not found for request: Specific(detector, 4)\n") == (code, err)


def test_colours_of_a_profile_are_converted_if_wanted(run: Run, tmp_path: Path) -> None:
    meter(tmp_path / "meter")
    levels = np.uint8([200, 50, 50])
    Image.fromarray(np.tile(levels, (8, 8, 1))).save("p3.png", icc_profile=colour_profiles.profile("Display P3"))
    for options, red in (((), 200), (("--icc",), colour_profiles.to_srgb(levels)[0])):
        code, out, _ = run("--local", "meter", *options, "p3.png")
        assert (0, pytest.approx(red, abs=1.5)) == (code, float(out.removeprefix("value\t")))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--local", ".", "good.jpg"], ". contains no version; versions are folders named 1, 2, 3, …"),
        (["--local", ".", "-t", "127.0.0.1", "good.jpg"], "--target does not apply to --local"),
        (["--local", ".", "-m", "flowers", "good.jpg"], "--model does not apply to --local"),
        (["--local", ".", "--result-queue", "q", "good.jpg"], "--result-queue does not apply to --local"),
        (["--local", "none", "good.jpg"], "Invalid value for '--local': Directory 'none' does not exist."),
    ],
    ids=["no version", "target", "name", "queue", "no folder"],
)
def test_options_that_do_not_fit_are_wrong_usage(run: Run, options: list[str], error: str) -> None:
    code, out, err = run(*options)
    assert (2, "", f"Error: {error}") == (code, out, err.splitlines()[-1])
