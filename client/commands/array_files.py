"""Arrays in files, as the command line reads and writes them: npy, npz and JSON. Must not know a server."""

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
    """Read inputs from the content of a file, whose kind its first bytes tell.

    Args:
        name: what it is an input of; None for a file that names its inputs itself: npz, or a JSON object.
        content: of the file.
        source: what to call it.

    Returns:
        Name to array, or to what JSON says, in which `{"b64": …}` is bytes.

    Raises:
        ValueError: where it is none of these, or a name is missing or one too many.
    """
    if content.startswith(b"PK"):
        found: Any = _read_npz(content, source)
    elif content.startswith(b"\x93NUMPY"):
        found = _read_npy(content, source)
    else:
        try:
            found = json.loads(content, object_hook=_as_bytes)
        except (ValueError, RecursionError) as exc:
            raise ValueError(f"{source} is neither npy, npz nor JSON: {exc}") from exc
    if name is not None:
        return {name: found}
    if not isinstance(found, dict):
        raise ValueError(f"{source} holds one array without a name; give it as NAME={source}")
    return found


def write_outputs(arrays: Mapping[str, np.ndarray], folder: Path, *, file_format: str) -> list[Path]:
    """Write outputs: an npy each, or `outputs.npz`, or `outputs.json`.

    In the name of a file, and in an npz, an alias is percent-encoded, `/` as `%2F`. Strings, for which npy has no type
    that keeps every byte, and types that numpy alone doesn't know (bfloat16), go to `outputs.json`.

    Raises:
        OSError: where a file can't be written.
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
    """Spell arrays as one JSON object, nested as their aliases say.

    Complex numbers are [real, imaginary]; bytes that are no UTF-8 are `{"b64": …}`; NaN and Infinity are bare words.
    """
    return json.dumps(trees.restore({alias: _plain(array) for alias, array in arrays.items()}), ensure_ascii=False)


def _plain(array: np.ndarray) -> Any:
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    elif array.dtype.kind == "O":
        spelled = np.empty(array.size, object)
        spelled[:] = [_text(item) for item in array.ravel().tolist()]
        array = spelled.reshape(array.shape)
    elif array.dtype.kind not in "biuf":
        array = array.astype(np.float64)
    return array.tolist()


def _text(item: bytes) -> Any:
    try:
        return item.decode()
    except UnicodeDecodeError:
        return {"b64": pybase64.b64encode_as_string(item)}


def _as_bytes(value: dict[str, Any]) -> Any:
    if value.keys() != {"b64"} or not isinstance(value["b64"], str):
        return value
    return pybase64.b64decode(value["b64"], validate=True)


def _read_npy(content: bytes, source: str) -> np.ndarray:
    try:
        array: np.ndarray = np.load(io.BytesIO(content))
    except (ValueError, EOFError) as exc:
        raise ValueError(f"{source} is no npy file that can be read: {exc}") from exc
    return array


def _read_npz(content: bytes, source: str) -> dict[str, np.ndarray]:
    try:
        with np.load(io.BytesIO(content)) as arrays:
            return {unquote(name): arrays[name] for name in arrays.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as exc:
        raise ValueError(f"{source} is no npz file that can be read: {exc}") from exc


def _write(path: Path, content: bytes) -> Path:
    staged = path.with_name(f".{path.name}.part")  # so that nothing half-written bears the name
    staged.write_bytes(content)
    return staged.replace(path)
