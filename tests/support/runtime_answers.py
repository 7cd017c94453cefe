"""Runs requests on SavedModels in TensorFlow 1 Sessions; needs TensorFlow and none of this project's packages.

    python runtime_answers.py REQUESTS ANSWERS

Both files are pickles that every version of NumPy reads. REQUESTS has lists of (name of a signature, values of its only
input) by the folder of a SavedModel. ANSWERS has the version of TensorFlow and, in the same order, the outputs of each
request by alias, or the text of an error.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

Requests = dict[str, list[tuple[str, list[Any]]]]


class Answers(NamedTuple):
    """What a version of TensorFlow answered."""

    version: str
    outputs: dict[str, list[dict[str, Any] | str]]


def ask_runtime(python: str | Path, requests: Requests, folder: Path) -> Answers:
    """Run requests with the TensorFlow of a Python."""
    files = folder / "requests.pickle", folder / "answers.pickle"
    files[0].write_bytes(pickle.dumps(requests))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
    subprocess.run([python, __file__, *files], check=True, env=environment, timeout=480)
    return Answers(*pickle.loads(files[1].read_bytes()))


def main() -> None:
    import tensorflow as tf
    from tf1_session import loaded

    def answer(run: Any, signature: str, values: list[Any]) -> dict[str, Any] | str:
        try:
            return {alias: array.tolist() for alias, array in run(signature, values).items()}
        except tf.errors.OpError as error:
            return error.message

    requests: Requests = pickle.loads(Path(sys.argv[1]).read_bytes())
    outputs: dict[str, Any] = {}
    for folder, calls in requests.items():
        try:
            with loaded(Path(folder)) as run:
                outputs[folder] = [answer(run, *call) for call in calls]
        except (tf.errors.OpError, ValueError) as error:  # ValueError: an operation is missing
            outputs[folder] = [str(error)] * len(calls)
    Path(sys.argv[2]).write_bytes(pickle.dumps((tf.__version__, outputs)))


if __name__ == "__main__":
    main()
