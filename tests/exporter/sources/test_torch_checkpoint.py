"""The reader of torch checkpoints, on files written here instruction by instruction, honest and hostile."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from savedmodel_bakery.exporter.sources.torch_checkpoint import CheckpointError, read_checkpoint

MAGIC = 0x1950A86A20F9469CFC6C
SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
EMPTY_ORDERED_DICT = b"ccollections\nOrderedDict\n)R"

Writer = Callable[..., bytes]


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value) if value < 2**31 else b"\x8a\x08" + struct.pack("<q", value)


def sequence(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def numbers(values: tuple[int, ...]) -> bytes:
    return sequence(*map(number, values))


def storage(key: str = "0", kind: str = "Float", length: int = 6, module: str = "torch") -> bytes:
    record = (
        text("storage"),
        f"c{module}\n{kind}Storage\n".encode(),
        text(key),
        text("cpu"),
        number(length),
        b"N",
    )
    return sequence(*record) + b"Q"


def tensor(shape: tuple[int, ...], strides: tuple[int, ...], *, offset: int = 0, of: bytes | None = None) -> bytes:
    arguments = (
        of or storage(),
        number(offset),
        numbers(shape),
        numbers(strides),
        b"\x89",
        EMPTY_ORDERED_DICT,
    )
    return REBUILD + sequence(*arguments) + b"R"


def state_dict(**entries: bytes) -> bytes:
    items = b"".join(text(name.replace("__", ".")) + value for name, value in entries.items())
    return b"\x80\x02" + EMPTY_ORDERED_DICT + b"(" + items + b"u."


def legacy(top: bytes, **storages: np.ndarray) -> bytes:
    keys = [key.removeprefix("_") for key in storages]
    head = [pickle.dumps(value, 2) for value in (MAGIC, 1001, SYSTEM)]
    contents = [struct.pack("<q", array.size) + array.tobytes() for array in storages.values()]
    return b"".join([*head, top, pickle.dumps(keys, 2), *contents])


def zipped(top: bytes, *, compression: int = zipfile.ZIP_STORED, **storages: np.ndarray) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("model/data.pkl", top)
        archive.writestr("model/byteorder", "little")
        for key, array in storages.items():
            archive.writestr(f"model/data/{key.removeprefix('_')}", array.tobytes())
        archive.writestr("model/version", "3\n")
    return file.getvalue()


both_containers = pytest.mark.parametrize("write", [legacy, zipped], ids=["legacy", "zip"])
SIX = np.arange(6, dtype="<f4")


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], dict[str, np.ndarray]]:
    def from_bytes(content: bytes) -> dict[str, np.ndarray]:
        (tmp_path / "weights.pth").write_bytes(content)
        return read_checkpoint(tmp_path / "weights.pth")

    return from_bytes


Read = Callable[[bytes], dict[str, np.ndarray]]


@both_containers
def test_names_values_and_order_are_the_files(read: Read, write: Writer) -> None:
    top = state_dict(z__weight=tensor((2, 3), (3, 1)), a__bias=tensor((2,), (1,), offset=4))
    arrays = read(write(top, _0=SIX))
    assert ["z.weight", "a.bias"] == list(arrays)
    np.testing.assert_array_equal([[0, 1, 2], [3, 4, 5]], arrays["z.weight"])
    np.testing.assert_array_equal([4, 5], arrays["a.bias"])


@both_containers
@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((3, 2), (1, 3), [[0, 3], [1, 4], [2, 5]]),
        ((2, 2), (3, 2), [[0, 2], [3, 5]]),
        ((), (), 0),
        ((0, 3), (3, 1), np.zeros((0, 3))),
        ((1, 6), (99, 1), [[0, 1, 2, 3, 4, 5]]),
    ],
    ids=["transposed", "with gaps", "zero-dim", "empty", "stride of an axis of one"],
)
def test_strides_are_honoured(
    read: Read, write: Writer, shape: tuple[int, ...], strides: tuple[int, ...], expected: object
) -> None:
    array = read(write(state_dict(x=tensor(shape, strides)), _0=SIX))["x"]
    assert shape == array.shape
    np.testing.assert_array_equal(np.asarray(expected), array)


@both_containers
def test_stem_with_channels_outermost_in_memory(read: Read, write: Writer) -> None:
    """EfficientNet-Lite0's stem (O,I,H,W) is stored as H,W,I,O: strides 1,32,288,96 count elements."""
    stored = np.arange(3 * 3 * 3 * 32, dtype="<f4")
    top = state_dict(stem=tensor((32, 3, 3, 3), (1, 32, 288, 96), of=storage(length=stored.size)))
    expected = stored.reshape(3, 3, 3, 32).transpose(3, 2, 0, 1)
    np.testing.assert_array_equal(expected, read(write(top, _0=stored))["stem"])


@both_containers
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("Float", "<f4"),
        ("Double", "<f8"),
        ("Half", "<f2"),
        ("Long", "<i8"),
        ("Int", "<i4"),
        ("Short", "<i2"),
        ("Char", "i1"),
        ("Byte", "u1"),
        ("Bool", "?"),
    ],
)
def test_element_types(read: Read, write: Writer, kind: str, dtype: str) -> None:
    values = np.array([1, 0, 1], dtype)
    array = read(write(state_dict(x=tensor((3,), (1,), of=storage(kind=kind, length=3))), _0=values))["x"]
    assert np.dtype(dtype) == array.dtype
    np.testing.assert_array_equal(values, array)


def test_arrays_cannot_be_written(read: Read) -> None:
    assert not read(legacy(state_dict(x=tensor((6,), (1,))), _0=SIX))["x"].flags.writeable


def test_parameters_metadata_and_memo_are_understood(read: Read) -> None:
    """What torch's own writer adds: memoised objects, `_metadata` set by BUILD, and wrapped parameters."""
    wrapped = b"ctorch._utils\n_rebuild_parameter\n" + sequence(tensor((2,), (1,)), b"\x88", EMPTY_ORDERED_DICT) + b"R"
    again = tensor((2,), (1,), offset=4, of=b"h\x01")
    of = storage() + b"q\x01"
    entries = text("a") + wrapped.replace(storage(), of) + text("b") + again
    metadata = b"}" + text("_metadata") + EMPTY_ORDERED_DICT + b"sb"
    arrays = read(legacy(b"\x80\x02" + EMPTY_ORDERED_DICT + b"(" + entries + b"u" + metadata + b".", _0=SIX))
    assert {"a": [0, 1], "b": [4, 5]} == {name: array.tolist() for name, array in arrays.items()}


def test_state_dict_inside_a_training_checkpoint(read: Read) -> None:
    inner = state_dict(x=tensor((2,), (1,)))[2:-1]
    assert ["x"] == list(read(legacy(b"\x80\x02}" + text("state_dict") + inner + b"s.", _0=SIX)))


class Command:
    """An object whose pickle runs a command when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.path}'",)


@both_containers
@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_no_code_is_run(read: Read, write: Writer, tmp_path: Path, protocol: int) -> None:
    content = write(pickle.dumps(Command(tmp_path / "ran"), protocol), _0=SIX)
    with pytest.raises(CheckpointError, match=r"system|instruction"):
        read(content)
    assert not (tmp_path / "ran").exists()


HUGE = 2**40


def nested_key(depth: int) -> bytes:
    return number(0) + b"".join(b"q" + bytes([level]) + b"h" + bytes([level]) + b"\x86" for level in range(depth))


HOSTILE = {
    "global os.system": (
        state_dict(x=b"cos\nsystem\n" + sequence(text("true")) + b"R"),
        "asks for os.system",
    ),
    "global builtins.eval": (state_dict(x=b"cbuiltins\neval\n"), "asks for builtins.eval"),
    "storage type without numpy type": (
        state_dict(x=storage(kind="BFloat16")),
        "asks for torch.BFloat16Storage",
    ),
    "storage type of another module": (state_dict(x=storage(module="numpy")), "asks for numpy.FloatStorage"),
    "extension code": (state_dict(x=b"\x82\x01"), "instruction EXT1"),
    "huge frame": (b"\x80\x04\x95" + struct.pack("<Q", HUGE) + b"}.", "instruction FRAME|damaged"),
    "huge byte array": (state_dict(x=b"\x96" + struct.pack("<Q", HUGE)), "damaged"),
    "huge text": (state_dict(x=b"X\xff\xff\xff\xff"), "damaged"),
    "huge memo index": (state_dict(x=b"Nr\xff\xff\xff\x7f"), "no tensor"),
    "tensor larger than its storage": (state_dict(x=tensor((7,), (1,))), "larger than its storage"),
    "tensor past its storage": (state_dict(x=tensor((2, 3), (4, 1))), "past its storage"),
    "offset past its storage": (state_dict(x=tensor((2,), (1,), offset=5)), "past its storage"),
    "huge stride": (state_dict(x=tensor((2,), (HUGE * 2**20,))), "past its storage"),
    "huge shape of stride 0": (state_dict(x=tensor((HUGE,), (0,))), "larger than its storage"),
    "huge empty shape": (state_dict(x=tensor((0, HUGE, HUGE), (1, 1, 1))), "past its storage"),
    "negative stride": (state_dict(x=tensor((2,), (-1,), offset=3)), "whole numbers from 0"),
    "negative offset": (state_dict(x=tensor((2,), (1,), offset=-1)), "whole numbers from 0"),
    "too few strides": (state_dict(x=tensor((2, 3), (1,))), "as many strides as axes"),
    "too many axes": (state_dict(x=tensor((1,) * 65, (1,) * 65)), "at most 64"),
    "huge storage": (state_dict(x=tensor((6,), (1,), of=storage(length=HUGE))), "another length|should have"),
    "negative storage": (state_dict(x=tensor((6,), (1,), of=storage(length=-1))), "wrong types"),
    "storage described twice": (
        state_dict(x=tensor((6,), (1,)), y=tensor((6,), (1,), of=storage(length=5))),
        "described twice",
    ),
    "storage key with a path": (
        state_dict(x=tensor((6,), (1,), of=storage(key="../data.pkl"))),
        "list of storages|the zip has none",
    ),
    "tensor of no storage": (state_dict(x=tensor((6,), (1,), of=b"N")), "wrong types"),
    "persistent id of nothing": (state_dict(x=b"NQ"), "not one that torch writes"),
    "storage that is a view": (
        state_dict(x=tensor((6,), (1,), of=storage()[:-3] + sequence(text("1"), number(0), number(6)) + b"tQ")),
        "views of others",
    ),
    "parameter without a tensor": (
        state_dict(x=b"ctorch._utils\n_rebuild_parameter\n" + sequence(b"N") + b"R"),
        "holds no tensor",
    ),
    "key that is slow to hash": (b"\x80\x02}" + nested_key(60) + b"Ns.", "not text"),
    "memo entry that is not there": (b"\x80\x02](" + b"h\x07" + b"e.", "damaged"),
    "entry that is no tensor": (
        b"\x80\x02}" + text("epoch") + number(3) + b"s.",
        'entry "epoch" is no tensor',
    ),
    "list on top": (b"\x80\x02]" + b".", "no dict"),
    "two objects on top": (b"\x80\x02NN.", "damaged"),
    "tuple without a mark": (b"\x80\x02t.", "damaged"),
    "instruction torch does not write": (b"\x80\x020.", "instruction POP"),
    "call on an empty stack": (b"\x80\x02R.", "damaged"),
    "call of nothing": (b"\x80\x02NNR.", "calls what is no function"),
    "item of no dict": (b"\x80\x02N" + text("x") + b"Ns.", "no dict"),
    "append to no list": (b"\x80\x02NNa.", "no list"),
    "empty": (b"", "damaged"),
}


@both_containers
@pytest.mark.parametrize(("top", "says"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused_without_allocating(read: Read, write: Writer, top: bytes, says: str) -> None:
    content = write(top, _0=SIX) if b"storage" in top else write(top)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=says):
            read(content)
        assert 1_000_000 > tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


GOOD = state_dict(x=tensor((2, 3), (3, 1)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no magic number"),
        (b"\x89PNG\r\n\x1a\n", "no magic number"),
        (pickle.dumps(1234, 2) + legacy(GOOD, _0=SIX), "another magic number"),
        (legacy(GOOD, _0=SIX).replace(pickle.dumps(1001, 2), pickle.dumps(1002, 2), 1), "protocol version"),
        (legacy(GOOD, _0=SIX).replace(b"little_endian", b"littel_endian"), "little-endian"),
        (legacy(GOOD), "list of storages differs"),
        (legacy(GOOD, _0=SIX, _1=SIX), "list of storages differs"),
        (legacy(GOOD, _0=SIX[:5]), "another length"),
        (legacy(GOOD, _0=SIX)[:-1], "cut off: storage 0 has 23 of 24 bytes"),
        (legacy(GOOD, _0=SIX) + b"\0", "goes on after"),
        (zipped(GOOD, _0=SIX, compression=zipfile.ZIP_DEFLATED), "compressed"),
        (zipped(GOOD, _0=SIX[:5]), "should have 24 bytes, the zip has 20"),
        (zipped(GOOD), "should have 24 bytes, the zip has none"),
        (zipped(GOOD, _0=SIX).replace(b"data.pkl", b"data.pkx"), "one data.pkl, the zip has 0"),
        (zipped(GOOD, _0=SIX)[:-30], "zip is damaged"),
    ],
    ids=[
        "empty",
        "a picture",
        "wrong magic",
        "wrong protocol",
        "no byte order",
        "storage missing",
        "storage too many",
        "storage too short",
        "cut off",
        "goes on",
        "compressed zip",
        "short zip entry",
        "zip entry missing",
        "zip of something else",
        "cut-off zip",
    ],
)
def test_damaged_containers_are_refused(read: Read, content: bytes, says: str) -> None:
    with pytest.raises(CheckpointError, match=says):
        read(content)


def test_big_endian_zip_is_refused(read: Read) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", GOOD)
        archive.writestr("model/byteorder", "big")
    with pytest.raises(CheckpointError, match="little-endian"):
        read(file.getvalue())


@both_containers
def test_every_truncation_is_refused(read: Read, write: Writer) -> None:
    content = write(GOOD, _0=SIX)
    for length in range(len(content)):
        with pytest.raises(CheckpointError):
            read(content[:length])


@both_containers
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_gives_an_answer_or_a_clear_error(read: Read, write: Writer, flip: int) -> None:
    content = bytearray(write(GOOD, _0=SIX))
    for position in range(len(content)):
        content[position] ^= flip
        with contextlib.suppress(CheckpointError):
            read(bytes(content))
        content[position] ^= flip


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "none.pth")
