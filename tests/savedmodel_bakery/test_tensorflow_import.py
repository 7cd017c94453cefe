"""TensorFlow is imported without changing the process of its caller; errors of its start are shown, its log is not."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from savedmodel_bakery import tensorflow_import
from savedmodel_bakery.tensorflow_import import import_tensorflow, startup_log_hidden

RUN = """
from savedmodel_bakery.{module} import import_tensorflow
import_tensorflow()
import tensorflow as tf
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    session.run(tf.constant(1) + 1)
"""
MODULES = ["exporter.commands.running", "serving.runtimes"]
ERROR = b"E0000 00:00:1.2 3 cuda_platform.cc:52] failed call to cuInit\n"
WARNING = b"W0000 00:00:1.2 3 gpu_device.cc:2342] Cannot dlopen some GPU libraries.\n"
LINES = (b"WARNING: All log messages before\nI0000 00:00:1.2 3 port.cc:153] oneDNN custom operations are on\n") + (
    ERROR + WARNING
)


def run(code: list[str], **levels: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"} | levels
    return subprocess.run([sys.executable, *code], env=environment, capture_output=True, text=True).stderr


@pytest.mark.parametrize(("module", "level"), [(MODULES[0], None), (MODULES[1], "1")])
def test_starting_tensorflow_prints_nothing(module: str, level: str | None) -> None:
    assert "" == run(["-c", RUN.format(module=module)], **({"TF_CPP_MIN_LOG_LEVEL": level} if level else {}))


def test_the_environment_variable_shows_the_whole_log() -> None:
    assert " oneDNN custom operations are on" in run(["-c", RUN.format(module=MODULES[1])], TF_CPP_MIN_LOG_LEVEL="0")


@pytest.mark.parametrize(
    "arguments",
    [["bake", "--model", "none"], ["function", "none:none", "--input", "x:int32[]"]],
    ids=lambda arguments: arguments[0],
)
def test_verbose_shows_the_whole_log(arguments: list[str]) -> None:
    assert " oneDNN custom operations are on" in run(["-m", "savedmodel_bakery", *arguments, "-v"])


@pytest.mark.parametrize(
    ("has_driver", "expected", "level"),
    [(False, b"", "2"), (True, ERROR + WARNING, "1")],
    ids=["no driver", "driver"],
)
def test_errors_and_warnings_are_shown_if_there_is_an_nvidia_driver(
    has_driver: bool,
    expected: bytes,
    level: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setattr(tensorflow_import, "_NVIDIA_DRIVER", tmp_path if has_driver else tmp_path / "none")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    with startup_log_hidden():
        os.write(2, LINES)
    assert expected == capfdbinary.readouterr().err
    assert level == os.environ["TF_CPP_MIN_LOG_LEVEL"]


def test_no_writable_folder_is_needed(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A container may have a read-only root file system."""
    monkeypatch.setattr(tensorflow_import, "_NVIDIA_DRIVER", Path("/proc/none"))
    with monkeypatch.context() as without_folder:
        without_folder.setattr(tempfile, "tempdir", "/proc/none")
        with startup_log_hidden():
            os.write(2, LINES)
    assert b"" == capfdbinary.readouterr().err


def test_everything_is_shown_if_the_start_fails(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def fail() -> None:
        with startup_log_hidden():
            os.write(2, LINES)
            raise ImportError

    with pytest.raises(ImportError):
        fail()
    assert LINES == capfdbinary.readouterr().err


@pytest.mark.parametrize("is_enabled", [True, False], ids=["on", "off"])
def test_the_collection_of_garbage_stays_on_or_off(is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        tensorflow = import_tensorflow(without=())
        assert tensorflow is sys.modules["tensorflow"]
        assert is_enabled == gc.isenabled()
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_packages_that_it_did_without_can_be_imported_afterwards() -> None:
    sys.modules.pop("colorsys", None)
    import_tensorflow(without=("colorsys",))
    assert "colorsys" == importlib.import_module("colorsys").__name__
