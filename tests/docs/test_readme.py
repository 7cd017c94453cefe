"""Every command in the README prints the output that the README shows; `…` matches any text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import flowers_model
import pytest
from readme import MARK, blocks, commands, matches, needs_rabbitmq, run
from server_process import free_port

# Commands that this test does not run, and why.
NOT_RUN = {
    "make demo": "has its own test",
    "make test": "runs this test",
    ". .venv/bin/activate": "the test uses its own environment",
    "docker": "run by tests/system/test_images.py",
    "bakery bulk --engine ray": "run by tests/system/test_bulk.py",
}


def is_run_elsewhere(command: str) -> bool:
    return any(f"{command} ".startswith(f"{not_run} ") for not_run in NOT_RUN)


@pytest.fixture
def workspace(clone: Path, tmp_path: Path) -> Path:
    """A folder with the examples and a Keras model with two classes."""
    (tmp_path / "examples").symlink_to(clone / "examples")
    subprocess.run([sys.executable, "-c", flowers_model.PROGRAM], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "flowers.txt").write_text(flowers_model.LABELS)
    return tmp_path


@pytest.mark.timeout(900)
def test_every_command_prints_what_the_readme_shows(clone: Path, workspace: Path) -> None:
    ports = {"8500": str(free_port()), "8501": str(free_port())}
    readme = re.sub("8500|8501", lambda port: ports[port[0]], (clone / "README.md").read_text())
    python = blocks(readme, "python")
    # Blocks that need a broker are run by tests/system/test_amqp_readme.py.
    shown_commands = commands([block for block in blocks(readme, "console") if not needs_rabbitmq(block)])
    script = []
    for number, (command, _) in enumerate(shown_commands):
        script.append(f"echo '{MARK} {number}'")
        if is_run_elsewhere(command):
            continue
        script.append(command)
        if command.startswith("(printf"):
            script.append(f"echo; echo '{MARK} python'")
            script.extend(f"python - <<'END'\n{code}END" for code in python)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "BAKERY_CLIENT_PORT": ports["8500"],
        "BAKERY_CLIENT_REST_API_PORT": ports["8501"],
        "PYTHONPATH": str(clone),
    }
    # The README's Python code uses the default ports.
    script = [line.replace("Client(", f"Client(port={ports['8500']}, ") for line in script]
    printed = run(script, folder=workspace, environment=environment)
    assert "".join(blocks(readme, "text")) == printed["python"]
    different = {
        command: printed[str(number)]
        for number, (command, shown) in enumerate(shown_commands)
        if not is_run_elsewhere(command) and not command.endswith("&") and not matches(shown, printed[str(number)])
    }
    assert {} == different


@pytest.mark.timeout(900)
def test_make_demo_prints_what_the_readme_shows(clone: Path) -> None:
    """Runs in the clone itself, so that a second run reuses its environment."""
    shown = dict(commands(blocks((clone / "README.md").read_text(), "console")))["make demo"]
    expected = re.findall(r"^\$ .*", shown, re.MULTILINE)[1:3]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    make = ["make", "demo", f"PORT={free_port()}", f"REST_API_PORT={free_port()}"]
    result = subprocess.run(make, cwd=clone, env=environment, capture_output=True, text=True, timeout=800, check=False)
    assert 0 == result.returncode, result.stdout + result.stderr
    for command in expected:
        command = re.sub(r"\d{4,5}", r"\\d+", re.escape(command))
        assert re.search(command + "\nespresso\t0.945\t967\n", result.stdout), result.stdout
    assert 2 == result.stdout.count('"ok": [')
    assert result.stdout.endswith("the server stopped with exit status 0\n")
