"""The reader of torch checkpoints, on valid and hostile files that are written here opcode by opcode."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from savedmodel_bakery.exporter.sources.torch_checkpoint import CheckpointError, read_checkpoint

MAGIC = 0x1950A86A20F9469CFC6C
SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
EMPTY_ORDERED_DICT = b"ccollections\nOrderedDict\n)R"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value) if value < 2**31 else b"\x8a\x08" + struct.pack("<q", value)


def sequence(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def numbers(values: tuple[int, ...]) -> bytes:
    return sequence(*map(number, values))


def storage(key: str = "0", type_name: str = "Float", length: int = 6, module: str = "torch") -> bytes:
    record = (
        text("storage"),
        f"c{module}\n{type_name}Storage\n".encode(),
        text(key),
        text("cpu"),
        number(length),
        b"N",
    )
    return sequence(*record) + b"Q"


def tensor(
    shape: tuple[int, ...], strides: tuple[int, ...], *, offset: int = 0, stored_in: bytes | None = None
) -> bytes:
    arguments = (
        stored_in or storage(),
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


SIX = np.arange(6, dtype="<f4")


Read = Callable[[bytes], dict[str, np.ndarray]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read the content of a file whose name states its checksum."""

    def read(content: bytes) -> dict[str, np.ndarray]:
        path = tmp_path / f"weights-{hashlib.sha256(content).hexdigest()[:8]}.pth"
        path.write_bytes(content)
        return read_checkpoint(path)

    return read


def test_names_values_and_order_are_those_of_the_file(read: Read) -> None:
    top = state_dict(z__weight=tensor((2, 3), (3, 1)), a__bias=tensor((2,), (1,), offset=4))
    arrays = read(legacy(top, _0=SIX))
    assert ["z.weight", "a.bias"] == list(arrays)
    np.testing.assert_array_equal([[0, 1, 2], [3, 4, 5]], arrays["z.weight"])
    np.testing.assert_array_equal([4, 5], arrays["a.bias"])


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
def test_strides_are_respected(read: Read, shape: tuple[int, ...], strides: tuple[int, ...], expected: object) -> None:
    array = read(legacy(state_dict(x=tensor(shape, strides)), _0=SIX))["x"]
    assert shape == array.shape
    np.testing.assert_array_equal(np.asarray(expected), array)


def test_the_stem_of_efficientnet_lite0(read: Read) -> None:
    """Its shape is O,I,H,W, but it is stored as H,W,I,O: strides 1,32,288,96, counted in elements."""
    stored = np.arange(3 * 3 * 3 * 32, dtype="<f4")
    top = state_dict(stem=tensor((32, 3, 3, 3), (1, 32, 288, 96), stored_in=storage(length=stored.size)))
    expected = stored.reshape(3, 3, 3, 32).transpose(3, 2, 0, 1)
    np.testing.assert_array_equal(expected, read(legacy(top, _0=stored))["stem"])


@pytest.mark.parametrize(
    ("type_name", "dtype"),
    [
        ("Float", "<f4"),
        ("Long", "<i8"),
    ],
)
def test_dtypes(read: Read, type_name: str, dtype: str) -> None:
    values = np.array([1, 0, 1], dtype)
    array = read(legacy(state_dict(x=tensor((3,), (1,), stored_in=storage(type_name=type_name, length=3))), _0=values))[
        "x"
    ]
    assert np.dtype(dtype) == array.dtype
    np.testing.assert_array_equal(values, array)


def test_arrays_are_read_only(read: Read) -> None:
    assert not read(legacy(state_dict(x=tensor((6,), (1,))), _0=SIX))["x"].flags.writeable


def test_metadata_and_memo_are_supported(read: Read) -> None:
    """The writer of torch adds memoised objects, and `_metadata` set by BUILD."""
    first = tensor((2,), (1,), stored_in=storage() + b"q\x01")
    again = tensor((2,), (1,), offset=4, stored_in=b"h\x01")
    entries = text("a") + first + text("b") + again
    metadata = b"}" + text("_metadata") + EMPTY_ORDERED_DICT + b"sb"
    arrays = read(legacy(b"\x80\x02" + EMPTY_ORDERED_DICT + b"(" + entries + b"u" + metadata + b".", _0=SIX))
    assert {"a": [0, 1], "b": [4, 5]} == {name: array.tolist() for name, array in arrays.items()}


class Command:
    """An object whose pickle runs a command when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.path}'",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_code_is_run(read: Read, tmp_path: Path, protocol: int) -> None:
    content = legacy(pickle.dumps(Command(tmp_path / "ran"), protocol), _0=SIX)
    with pytest.raises(CheckpointError, match=r"refers to (posix|nt)\.system, which is not allowed"):
        read(content)
    assert not (tmp_path / "ran").exists()


def test_the_checksum_is_verified_before_unpickling(tmp_path: Path) -> None:
    """The pickle would be rejected for another reason if it were looked at."""
    path = tmp_path / "weights-01234567.pth"
    path.write_bytes(legacy(pickle.dumps(Command(tmp_path / "ran"), 2)))
    with pytest.raises(CheckpointError, match=r"sha256 starts with [0-9a-f]{8}, not 01234567"):
        read_checkpoint(path)


@pytest.mark.parametrize("name", ["weights.pth", "weights-0123456.pth", "weights-01234567.pth.part", "01234567.pth"])
def test_a_file_name_without_checksum_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(legacy(GOOD, _0=SIX))
    with pytest.raises(CheckpointError, match="must end with 8 digits of the file's sha256"):
        read_checkpoint(tmp_path / name)


GOOD = state_dict(x=tensor((2, 3), (3, 1)))
HUGE = 2**40


def called(name: bytes, *arguments: bytes) -> bytes:
    return b"c" + name + b"\n" + sequence(*arguments) + b"R"


HOSTILE = {
    "global os.system": (state_dict(x=called(b"os\nsystem", text("true"))), r"refers to os\.system"),
    "global builtins.eval": (state_dict(x=b"cbuiltins\neval\n"), r"refers to builtins\.eval"),
    "attribute of an allowed global": (
        b"\x80\x04" + text("collections") + text("OrderedDict.__init__") + b"\x93.",
        r"refers to collections\.OrderedDict\.__init__",
    ),
    "storage type without numpy dtype": (
        state_dict(x=storage(type_name="BFloat16")),
        r"refers to torch\.BFloat16Storage",
    ),
    "storage type of another module": (state_dict(x=storage(module="numpy")), r"refers to numpy\.FloatStorage"),
    "extension code": (state_dict(x=b"\x82\x01"), "is damaged: unregistered extension code 1"),
    "tensor larger than its storage": (state_dict(x=tensor((7,), (1,))), "more elements than its storage"),
    "tensor past its storage": (state_dict(x=tensor((2, 3), (4, 1))), "is damaged"),
    "offset past its storage": (state_dict(x=tensor((2,), (1,), offset=5)), "is damaged"),
    "huge offset": (state_dict(x=tensor((2,), (1,), offset=HUGE * 2**20)), "is damaged"),
    "huge stride": (state_dict(x=tensor((2,), (HUGE * 2**20,))), "is damaged"),
    "stride that overflows": (state_dict(x=tensor((3,), (2**61,))), "is damaged"),
    "huge shape of stride 0": (state_dict(x=tensor((HUGE,), (0,))), "more elements than its storage"),
    "huge empty shape": (state_dict(x=tensor((0, HUGE, HUGE), (1, 1, 1))), "is damaged"),
    "negative offset": (state_dict(x=tensor((2,), (1,), offset=-1)), "is damaged"),
    "negative shape": (state_dict(x=tensor((-2,), (1,))), "is damaged"),
    "too few strides": (state_dict(x=tensor((2, 3), (1,))), "is damaged"),
    "too many axes": (state_dict(x=tensor((1,) * 65, (1,) * 65)), "is damaged"),
    "negative storage": (state_dict(x=tensor((6,), (1,), stored_in=storage(length=-1))), "invalid storage"),
    "storage key with a path": (
        state_dict(x=tensor((6,), (1,), stored_in=storage(key="../data.pkl"))),
        "is damaged",
    ),
    "tensor without storage": (state_dict(x=tensor((6,), (1,), stored_in=b"N")), "is damaged"),
    "persistent id that is no storage": (state_dict(x=b"NQ"), "invalid storage"),
    "persistent id of nested tuples": (state_dict(x=b")q\x00" + b"h\x00\x86q\x00" * 50 + b"Q"), "invalid storage"),
    "storage key that is a tuple": (
        state_dict(x=sequence(text("storage"), b"ctorch\nFloatStorage\n", b")", b"N", b"N") + b"Q"),
        "invalid storage",
    ),
    "a tuple in itself, 2,000 times": (state_dict(x=b")" + b"\x85" * 2000), "is damaged"),
    "tensor without arguments": (state_dict(x=called(b"torch._utils\n_rebuild_tensor_v2")), "is damaged"),
    "memo entry that does not exist": (b"\x80\x02](" + b"h\x07" + b"e.", "is damaged"),
    "entry that is no tensor": (b"\x80\x02}" + text("epoch") + number(3) + b"s.", "is damaged"),
    "list on top": (b"\x80\x02].", "is damaged"),
    "tensor on top": (b"\x80\x02" + tensor((6,), (1,)) + b".", "is damaged"),
    "tuple without a mark": (b"\x80\x02t.", "is damaged"),
    "call on an empty stack": (b"\x80\x02R.", "is damaged"),
    "call of None": (b"\x80\x02NNR.", "is damaged"),
    "item of None": (b"\x80\x02N" + text("x") + b"Ns.", "is damaged"),
    "append to None": (b"\x80\x02NNa.", "is damaged"),
    "attributes of a function": (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}" + text("__code__") + b"Ns\x86b.",
        "is damaged",
    ),
    "attributes of OrderedDict": (
        b"\x80\x02ccollections\nOrderedDict\nN}" + text("__reduce__") + b"Ns\x86b.",
        "is damaged",
    ),
    "empty": (b"", "is damaged"),
}


@pytest.mark.parametrize(("top", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_rejected(read: Read, top: bytes, message: str) -> None:
    content = legacy(top, _0=SIX) if b"storage" in top else legacy(top)
    with pytest.raises(CheckpointError, match=message):
        read(content)


def test_attributes_set_by_one_file_do_not_affect_the_next(read: Read) -> None:
    """Defaults would replace arguments that are missing in another file, read by the same process."""
    defaults = b"}" + text("__defaults__") + sequence(storage(), number(0), numbers((6,)), numbers((1,))) + b"s"
    with pytest.raises(CheckpointError):
        read(legacy(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN" + defaults + b"\x86b.", _0=SIX))
    with pytest.raises(CheckpointError, match=r"is damaged: .*missing 4 required positional arguments"):
        read(legacy(state_dict(x=called(b"torch._utils\n_rebuild_tensor_v2")), _0=SIX))


DAMAGED = {
    "empty": (b"", "not a torch checkpoint"),
    "a PNG file": (b"\x89PNG\r\n\x1a\n", "not a torch checkpoint"),
    "a zip, as torch 1.6 writes": (b"PK\x03\x04", "not a torch checkpoint of the format before torch 1.6"),
    "wrong magic number": (pickle.dumps(1234, 2) + legacy(GOOD, _0=SIX), "not a torch checkpoint"),
    "wrong protocol": (
        legacy(GOOD, _0=SIX).replace(pickle.dumps(1001, 2), pickle.dumps(1002, 2), 1),
        "not a torch checkpoint",
    ),
    "storage missing": (legacy(GOOD), "is damaged"),
    "storage too many": (legacy(GOOD, _0=SIX, _1=SIX), "is damaged"),
    "storage too short": (legacy(GOOD, _0=SIX[:5]), "more elements than its storage"),
    "truncated": (legacy(GOOD, _0=SIX)[:-1], "more elements than its storage"),
}


@pytest.mark.parametrize(("content", "message"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_containers_are_rejected(read: Read, content: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(content)


def test_every_truncation_is_rejected(read: Read) -> None:
    content = legacy(GOOD, _0=SIX)
    for length in range(len(content)):
        with pytest.raises(CheckpointError):
            read(content[:length])


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_gives_arrays_or_a_checkpoint_error(read: Read, flip: int) -> None:
    """With a checksum to match, because otherwise nothing else would be tested."""
    content = bytearray(legacy(GOOD, _0=SIX))
    for position in range(len(content)):
        content[position] ^= flip
        with contextlib.suppress(CheckpointError):
            read(bytes(content))
        content[position] ^= flip


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "weights-01234567.pth")
