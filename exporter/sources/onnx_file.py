"""Source: an ONNX file, which onnx2tf converts to a SavedModel.

onnx2tf needs another version of TensorFlow than the bakery, and so an environment of its own.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources.network import Network
from savedmodel_bakery.exporter.sources.saved_model import from_signature, load

_CONVERT = "import onnx2tf; onnx2tf.main()"
_OF_THIS_PYTHON = ("PYTHONPATH", "PYTHONHOME")


def is_onnx(model: str) -> bool:
    """Return whether the name of a model is that of an ONNX file."""
    return Path(model).suffix.lower() == ".onnx"


def read(
    model: str, *, onnx2tf: str | None = None, source_input: str | None = None, source_output: str | None = None
) -> Network:
    """Convert the file, and load the result.

    Args:
        model: the path of the file.
        onnx2tf: the Python interpreter of an environment with onnx2tf; None for this one.
        source_input: the input for the image, or two with a comma, if it has several.
        source_output: the output of the network, if it has several; None for all.

    Raises:
        SourceError: there is no such file or interpreter, or the file can't be converted.
    """
    if not Path(model).is_file():
        raise SourceError(f"cannot read {model}: there is no such file")
    if onnx2tf is None and importlib.util.find_spec("onnx2tf") is None:
        raise SourceError(
            f"{model} is an ONNX model, which onnx2tf converts: pass --onnx2tf PYTHON, the interpreter of an "
            "environment that has it"
        )
    with tempfile.TemporaryDirectory() as folder:
        python = shutil.which(onnx2tf or sys.executable)
        if python is None:
            raise SourceError(f"cannot run {onnx2tf}: there is no such program")
        convert = [str(Path(python).absolute()), "-c", _CONVERT, "-i", str(Path(model).resolve()), "-o", folder]
        left_out = _OF_THIS_PYTHON if onnx2tf else ()
        try:
            done = subprocess.run(
                convert,
                cwd=folder,
                env={name: value for name, value in os.environ.items() if name not in left_out},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise SourceError(f"cannot run {onnx2tf}: {error.strerror}") from error
        if done.returncode or not Path(folder, "saved_model.pb").is_file():
            *_, reason = (done.stdout + done.stderr).strip().splitlines() or [f"it ends with code {done.returncode}"]
            raise SourceError(f"onnx2tf cannot convert {model}: {reason}")
        return from_signature(load(folder), model, input_alias=source_input, output_alias=source_output)
