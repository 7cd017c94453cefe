"""The files of a model disappear, return or are damaged: callers of the loaded version notice nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import model_makers
from model_servers import version_states
from server_process import ServerProcess
from steady_callers import PredictCallers
from waiting import wait_until

SCAN = "--file_system_poll_wait_seconds=1"
SERVED = ("AVAILABLE", "OK")


def test_the_base_path_disappears_and_returns(tmp_path: Path) -> None:
    """As with a file system that is not mounted for a while; it returns with a newer version."""
    base_path, away = tmp_path / "halves", tmp_path / "away"
    model_makers.half_plus(base_path, 1, plus=1.0)
    flags = ("--model_name=halves", f"--model_base_path={base_path}", SCAN)
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        with PredictCallers(server, "halves", right=(1.0, 2.0)) as callers:
            callers.wait_for_answer(1.0)
            base_path.rename(away)
            server.wait_for_log("Could not find base path")
            callers.wait_for_round()
            assert {1: SERVED} == version_states(server, "halves")
            model_makers.half_plus(away, 2, plus=2.0)
            away.rename(base_path)
            callers.wait_for_answer(2.0)
        callers.assert_served()
        print("longest time without an answer:", dict(callers.longest_gap_s))


def test_a_model_file_is_truncated(tmp_path: Path) -> None:
    """Of a new version, of which the second half of a file is missing; a later version repairs it."""
    base_path, staged = tmp_path / "halves", tmp_path / "staged"
    model_makers.half_plus(base_path, 1, plus=1.0)
    flags = ("--model_name=halves", f"--model_base_path={base_path}", SCAN, "--max_num_load_retries=0")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        with PredictCallers(server, "halves", right=(1.0, 5.0)) as callers:
            callers.wait_for_answer(1.0)
            for version, pattern in enumerate(("saved_model.pb", "variables.index", "variables.data-*"), 2):
                shutil.copytree(base_path / "1", staged)
                (file,) = staged.rglob(pattern)
                content = file.read_bytes()
                file.write_bytes(content[: len(content) // 2])
                staged.rename(base_path / str(version))
                wait_until(lambda version=version: "END" == version_states(server, "halves").get(version, ("",))[0])
                states = version_states(server, "halves")
                print(file.name, states[version])
                assert SERVED == states[1]
                assert "OK" != states[version][1]
            model_makers.half_plus(base_path, 5, plus=5.0)
            callers.wait_for_answer(5.0)
        callers.assert_served()
