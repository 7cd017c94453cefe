"""Calls tritonserver with the official client `tritonclient`; run by the Python of its environment.

Reads a job as JSON from stdin (see `TritonServer.infer`), and prints the answers as JSON.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np


def to_json(array: np.ndarray) -> dict[str, Any]:
    """Return an array as JSON values; bytes in base64."""
    is_bytes = array.dtype == np.object_
    values = [base64.b64encode(value).decode() for value in array.flat] if is_bytes else array.ravel().tolist()
    return {"dtype": "bytes" if is_bytes else array.dtype.name, "shape": array.shape, "values": values}


def from_json(content: dict[str, Any]) -> np.ndarray:
    """Return the array of `to_json`."""
    if content["dtype"] != "bytes":
        return np.array(content["values"], content["dtype"]).reshape(content["shape"])
    array = np.empty(len(content["values"]), np.object_)
    array[:] = [base64.b64decode(value) for value in content["values"]]
    return array.reshape(content["shape"])


def main() -> None:
    """Run the job on stdin."""
    job = json.load(sys.stdin)
    calls = [{name: from_json(array) for name, array in call.items()} for call in job["calls"]]
    library = importlib.import_module(f"tritonclient.{job['protocol']}")
    utils = importlib.import_module("tritonclient.utils")
    outputs = [library.InferRequestedOutput(name) for name in job["outputs"]] or None

    def call(arrays: dict[str, np.ndarray]) -> dict[str, Any] | str:
        inputs = []
        for name, array in arrays.items():
            inputs.append(library.InferInput(name, array.shape, utils.np_to_triton_dtype(array.dtype)))
            inputs[-1].set_data_from_numpy(array)
        try:
            with library.InferenceServerClient(job["target"]) as client:
                result = client.infer(job["model"], inputs, outputs=outputs)
        except utils.InferenceServerException as error:
            return error.message()
        answer = result.get_response()
        listed = answer["outputs"] if isinstance(answer, dict) else answer.outputs
        names = [output["name"] if isinstance(output, dict) else output.name for output in listed]
        return {name: to_json(result.as_numpy(name)) for name in names}

    with ThreadPoolExecutor(len(calls)) as threads:
        json.dump(list(threads.map(call, calls)), sys.stdout)


if __name__ == "__main__":
    main()
