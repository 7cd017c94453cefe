"""Reads and writes arrays as npy, npz and JSON files."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pybase64

from savedmodel_bakery.wire import trees


def read_input(name: str | None, content: bytes, source: str) -> dict[str, Any]:
    """Return inputs by name from a file's content, whose first bytes determine the format.

    The name is None if the file has names itself: npz, or a JSON object. In JSON, `{"b64": …}` is bytes.
    """
    value: Any
    if content.startswith((b"PK", b"\x93NUMPY")):
        value = _read_numpy(content, source)
    else:
        try:
            value = json.loads(content, object_hook=_decode_base64)
        except (ValueError, RecursionError) as exc:
            raise ValueError(f"{source} is neither npy, npz nor JSON: {exc}") from exc
    if name is not None:
        return {name: value}
    if not isinstance(value, dict):
        raise ValueError(f"{source} contains one array without a name: pass it as NAME={source}")
    return value


def write_outputs(arrays: Mapping[str, np.ndarray], folder: Path, *, file_format: str) -> list[Path]:
    """Write outputs to one npy file per output, to `outputs.npz` or to `outputs.json`; return the files.

    In file names and in npz files, aliases are percent-encoded (`/` is `%2F`). Strings, for which npy has no type that
    keeps every byte, and types that numpy lacks (bfloat16) are written to `outputs.json` in any case.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if file_format == "json":
        return [_write(folder / "outputs.json", to_json(arrays).encode() + b"\n")]
    plain = {alias: array for alias, array in arrays.items() if array.dtype.kind in "biufc"}
    others = {alias: array for alias, array in arrays.items() if alias not in plain}
    paths = []
    if file_format == "npz" and plain:
        stream = io.BytesIO()
        np.savez(stream, **{quote(alias, safe=""): array for alias, array in plain.items()})  # type: ignore[arg-type]
        paths.append(_write(folder / "outputs.npz", stream.getvalue()))
    elif file_format == "npy":
        for alias, array in plain.items():
            stream = io.BytesIO()
            np.save(stream, array)
            paths.append(_write(folder / f"{quote(alias, safe='')}.npy", stream.getvalue()))
    if others:
        paths.append(_write(folder / "outputs.json", to_json(others).encode() + b"\n"))
    return paths


def to_json(arrays: Mapping[str, np.ndarray]) -> str:
    """Return arrays as one JSON object, nested according to their aliases.

    Complex numbers are [real, imaginary]; bytes that are not valid UTF-8 are `{"b64": …}`; NaN and Infinity are written
    without quotes.
    """
    values = trees.restore({alias: _json_value(array) for alias, array in arrays.items()})
    return json.dumps(values, ensure_ascii=False, default=_text)


def _json_value(array: np.ndarray) -> Any:
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    elif array.dtype.kind not in "biufO":
        array = array.astype(np.float64)
    return array.tolist()


def _text(item: bytes) -> Any:
    try:
        return item.decode()
    except UnicodeDecodeError:
        return {"b64": pybase64.b64encode_as_string(item)}


def _decode_base64(value: dict[str, Any]) -> Any:
    if value.keys() != {"b64"} or not isinstance(value["b64"], str):
        return value
    return pybase64.b64decode(value["b64"], validate=True)


def _read_numpy(content: bytes, source: str) -> np.ndarray | dict[str, np.ndarray]:
    """Return the array of a npy file, or those of a npz file by name."""
    try:
        with io.BytesIO(content) as file:
            loaded: Any = np.load(file)
            if isinstance(loaded, np.ndarray):
                return loaded
            return {unquote(name): loaded[name] for name in loaded.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as exc:
        suffix = "npz" if content.startswith(b"PK") else "npy"
        raise ValueError(f"{source} is not a valid {suffix} file: {exc}") from exc


def _write(path: Path, content: bytes) -> Path:
    staged = path.with_name(f".{path.name}.part")  # so that no partial file has the final name
    staged.write_bytes(content)
    return staged.replace(path)
