"""The files that `predict` reads and writes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery.client.commands.array_files import read_input, to_json, write_outputs

ARRAYS = {
    "x": np.float64([[1.5, 2]]),
    "a/0": np.array(7, np.uint8),
    "text": np.array([b"caf\xc3\xa9", b"\xff"], object),
    "half": np.array([1.5], ml_dtypes.bfloat16),
}


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def test_the_format_of_a_file_is_determined_by_its_content() -> None:
    array = np.float32([[1, 2]])
    assert array.tolist() == read_input("x", npy(array), "f")["x"].tolist()
    assert np.dtype(np.float32) == read_input("x", npy(array), "f")["x"].dtype
    arrays = read_input(None, npz(**{"a%2F0": array, "y": array}), "f")
    assert ["a/0", "y"] == sorted(arrays)
    assert {"x": [[1, 2.5]]} == read_input("x", b"[[1, 2.5]]", "f")
    assert {"x": [b"\xff", "é"], "y": {"z": 1}} == read_input(
        None, '{"x": [{"b64": "/w=="}, "é"], "y": {"z": 1}}'.encode(), "f"
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, b"[1]", "f contains one array without a name: pass it as NAME=f"),
        (None, npy(np.zeros(1)), "f contains one array without a name"),
        ("x", b"", "f is neither npy, npz nor JSON"),
        ("x", b"\xff", "f is neither npy, npz nor JSON"),
        ("x", b'{"b64": "?"}', "f is neither npy, npz nor JSON"),
        ("x", npy(np.zeros(9))[:-1], "f is not a valid npy file"),
        ("x", b"PK\x03\x04", "f is not a valid npz file"),
        ("x", npz(x=np.array([None])), "f is not a valid npz file: Object arrays"),
    ],
    ids=["JSON", "npy", "empty", "binary", "base64", "cut npy", "cut npz", "pickle"],
)
def test_other_content_is_a_value_error(name: str | None, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_input(name, content, "f")


def test_each_output_is_written_to_a_file(tmp_path: Path) -> None:
    paths = write_outputs(ARRAYS, tmp_path / "out", file_format="npy")
    assert ["a%2F0.npy", "outputs.json", "x.npy"] == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert {path.name for path in paths} == {path.name for path in (tmp_path / "out").iterdir()}
    arrays = np.load(tmp_path / "out" / "x.npy")
    assert (np.dtype(np.float64), [[1.5, 2]]) == (arrays.dtype, arrays.tolist())
    assert {"text": ["café", {"b64": "/w=="}], "half": [1.5]} == json.loads(
        (tmp_path / "out" / "outputs.json").read_text()
    )


def test_outputs_in_one_file_can_be_used_as_inputs(tmp_path: Path) -> None:
    [path, _] = write_outputs(ARRAYS, tmp_path, file_format="npz")
    assert ["a/0", "x"] == sorted(read_input(None, path.read_bytes(), "f"))
    [path] = write_outputs(ARRAYS, tmp_path, file_format="json")
    assert [7] == read_input(None, path.read_bytes(), "f")["a"]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.complex64([1 + 2j]), [[1, 2]]),
        (np.array(True), True),
        (np.zeros((2, 0)), [[], []]),
        (np.array([[b"a"]], object), [["a"]]),
    ],
    ids=["complex", "scalar", "empty", "strings"],
)
def test_json_has_every_type(array: np.ndarray, expected: Any) -> None:
    assert {"y": expected} == json.loads(to_json({"y": array}))
