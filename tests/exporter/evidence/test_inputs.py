"""The recipe is found from what the network received in training, and what contradicts it is named."""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import png
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from savedmodel_bakery.errors import EvidenceError
from savedmodel_bakery.exporter.evidence.evidence import by_photo
from savedmodel_bakery.exporter.evidence.inputs import read_inputs
from savedmodel_bakery.exporter.evidence.judge import Judgement, judge

SIZE = 32
IMAGENET = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory, rocket: Image.Image) -> list[Path]:
    """Photos of odd sizes: one that is turned by EXIF, one with transparency."""
    folder = tmp_path_factory.mktemp("photos")
    exif = Image.Exif()
    exif[0x0112] = 6
    rocket.resize((121, 80)).save(folder / "turned.jpg", exif=exif, quality=80)
    rocket.transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((59, 90)).save(folder / "tall.jpg", quality=85)
    transparent = rocket.resize((70, 58))
    transparent.putalpha(Image.linear_gradient("L").resize(transparent.size))
    transparent.save(folder / "transparent.png")
    return sorted(folder.iterdir())


def opened(path: Path) -> Image.Image:
    return Image.open(path).convert("RGB")


def decoded(path: Path) -> tf.Tensor:
    return tf.io.decode_image(path.read_bytes(), channels=3, expand_animations=False)


def array(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture, np.float32)


def cropped(path: Path, short: int) -> np.ndarray:
    picture = opened(path)
    sides = [int(short * side / min(picture.size)) for side in picture.size]
    left, top = (round((side - SIZE) / 2) for side in sides)
    return array(picture.resize(sides, Image.Resampling.BILINEAR).crop((left, top, left + SIZE, top + SIZE)))


def upright(path: Path) -> Image.Image:
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def keras_image(path: Path) -> np.ndarray:
    return keras.utils.img_to_array(keras.utils.load_img(path, target_size=(SIZE, SIZE)))


TENSORFLOW = {"orientation": "ignore", "jpeg_dct": "fast", "alpha": "drop"}
PILLOW = {"orientation": "ignore", "jpeg_dct": "accurate", "alpha": "drop"}
# What the training does, and the recipe to find.
PIPELINES: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "tf.image.resize": (
        lambda path: tf.image.resize(decoded(path), (SIZE, SIZE)) / 255,
        {"crop": "none", "resize": "bilinear", "antialias": False, "scale": "0..1", **TENSORFLOW},
    ),
    "tf.image.resize, bicubic": (
        lambda path: tf.image.resize(decoded(path), (SIZE, SIZE), "bicubic", antialias=True) / 127.5 - 1,
        {"crop": "none", "resize": "bicubic", "antialias": True, "scale": "-1..1", **TENSORFLOW},
    ),
    "tf.image.resize, area": (
        lambda path: tf.image.resize(decoded(path), (SIZE, SIZE), "area"),
        {"crop": "none", "resize": "area", "scale": "0..255", **TENSORFLOW},
    ),
    "load_img": (keras_image, {"crop": "none", "resize": "nearest", "scale": "0..255", **PILLOW}),
    "Pillow, caffe": (
        lambda path: (array(opened(path).resize((SIZE, SIZE), Image.Resampling.BICUBIC)) - [123.68, 116.779, 103.939])[
            ..., ::-1
        ],
        {"crop": "none", "resize": "bicubic", "antialias": True, "scale": "caffe", "channels": "BGR", **PILLOW},
    ),
    "Pillow, upright": (
        lambda path: array(upright(path).resize((SIZE, SIZE), Image.Resampling.BILINEAR)) / 255,
        {"crop": "none", "resize": "bilinear", "antialias": True, "scale": "0..1", **PILLOW, "orientation": "exif"},
    ),
    "torchvision": (
        lambda path: ((cropped(path, 36) - IMAGENET[0]) / IMAGENET[1]).transpose(2, 0, 1),
        {"crop": "short:36", "resize": "bilinear", "antialias": True, "scale": "imagenet", "channels": "RGB", **PILLOW},
    ),
    "gray": (
        lambda path: array(opened(path).convert("L").resize((SIZE, SIZE), Image.Resampling.BILINEAR))[..., np.newaxis],
        {"crop": "none", "resize": "bilinear", "antialias": True, "scale": "0..255", "channels": "GRAY", **PILLOW},
    ),
    "resize_with_pad": (
        lambda path: tf.image.resize_with_pad(decoded(path), SIZE, SIZE),
        {"crop": "letterbox:down", "padding": "0,0,0", "resize": "bilinear", "antialias": False, **TENSORFLOW},
    ),
    "own mean and deviation": (
        lambda path: (tf.image.resize(decoded(path), (SIZE, SIZE)) - [110.5, 99.25, 90.0]) / [61.0, 60.5, 63.25],
        {"resize": "bilinear", "scale": "110.5,99.25,90:61,60.5,63.25", **TENSORFLOW},
    ),
    "a central square": (
        lambda path: tf.image.resize(keras.preprocessing.image.smart_resize(decoded(path), (SIZE, SIZE)), (SIZE, SIZE)),
        {"crop": "1", "crop_margin": "down", "resize": "bilinear", "antialias": False, **TENSORFLOW},
    ),
}


def judged(taken: list[Path], prepare: Callable[[Path], Any], folder: Path, **stated: Any) -> Judgement:
    np.savez(folder / "inputs.npz", **{path.name: np.asarray(prepare(path)) for path in taken})
    return judge(read_inputs(str(folder / "inputs.npz"), taken), stated)


@pytest.mark.parametrize(("prepare", "expected"), PIPELINES.values(), ids=PIPELINES)
def test_the_recipe_of_a_training_is_found(
    taken: list[Path], tmp_path: Path, prepare: Callable[[Path], Any], expected: dict[str, Any]
) -> None:
    judgement = judged(taken, prepare, tmp_path)
    assert expected == {name: judgement.values[name] for name in expected}
    assert judgement.distance < 0.6


CONTRADICTIONS = {
    "channels": ({"channels": "BGR"}, "--channels RGB; channels BGR is stated"),
    "scale": ({"scale": "-1..1"}, "--scale 0..1; scale -1..1 is stated"),
    "crop": ({"crop": "7/8"}, "--crop none; crop 7/8 is stated"),
    "resize": ({"resize": "nearest", "antialias": False}, "--resize bilinear; resize nearest is stated"),
    "antialias": ({"antialias": True}, "--no-antialias; antialias True is stated"),
    "orientation": ({"orientation": "exif"}, "--orientation ignore; orientation exif is stated"),
    "alpha": ({"alpha": "background"}, "--alpha drop; alpha background is stated"),
    "jpeg_dct": ({"jpeg_dct": "accurate"}, "--jpeg-dct fast; jpeg_dct accurate is stated"),
}


@pytest.mark.parametrize(("stated", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_what_contradicts_is_named(taken: list[Path], tmp_path: Path, stated: dict[str, Any], message: str) -> None:
    prepare, right = PIPELINES["tf.image.resize"]
    with pytest.raises(EvidenceError) as refused:
        judged(taken, prepare, tmp_path, **{**right, **stated})
    assert message in str(refused.value)


def test_the_table_says_how_well_a_field_is_fixed(taken: list[Path], tmp_path: Path) -> None:
    prepare, _ = PIPELINES["tf.image.resize"]
    table = judged(taken, prepare, tmp_path, crop="none").to_table()
    assert re.search(r"^crop +none +stated, agrees$", table, re.M)
    assert re.search(r"^resize +bilinear +found: 0\.00 levels against \d\.\d\d levels for \w+$", table, re.M)
    assert re.search(r"^crop_margin +default +of no effect on these photos$", table, re.M)


def test_what_is_no_resize_of_the_photos_is_refused(taken: list[Path], tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=(SIZE, SIZE, 3))
    with pytest.raises(
        EvidenceError, match=r"^no recipe makes these inputs: the nearest is \d+\.\d\d levels away, with --crop"
    ):
        judged(taken, lambda _: noise, tmp_path)


def test_photos_that_tell_nothing_of_the_crop(tmp_path: Path, rocket: Image.Image) -> None:
    rocket.resize((SIZE, SIZE)).save(tmp_path / "square.png")
    with pytest.raises(
        EvidenceError,
        match=r"agree with --crop none and --crop \S+ alike: 0\.00 levels and 0\.00 levels; with --resize .*; state",
    ):
        judged([tmp_path / "square.png"], lambda path: array(opened(path)), tmp_path)
    stated = {"crop": "none", "resize": "bilinear", "antialias": False}
    told = judged([tmp_path / "square.png"], lambda path: array(opened(path)), tmp_path, **stated)
    assert "stated, of no effect on these photos" == told.remarks["crop"]


def test_another_size_is_refused(taken: list[Path], tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"the inputs have the size 32x32, but the recipe 56x56"):
        judged(taken, PIPELINES["load_img"][0], tmp_path, size=(56, 56))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another file": ({"sunset.jpg": np.zeros((4, 4, 3))}, "'sunset.jpg' is not the name of one of the 3 photos"),
    "no image": ({"tall.jpg": np.zeros((4, 4))}, "the input for tall.jpg is float64 [4, 4]: must be numbers [height"),
    "no numbers": ({"tall.jpg": np.full((4, 4, 3), "x")}, "the input for tall.jpg is <U1 [4, 4, 3]: must be numbers"),
    "not finite": ({"tall.jpg": np.full((4, 4, 3), np.nan)}, "the input for tall.jpg has values that are not finite"),
    "two shapes": (
        {"tall.jpg": np.zeros((4, 4, 3)), "turned.jpg": np.zeros((1, 4, 5, 3))},
        "the input for tall.jpg has shape [4, 4, 3], that for turned.jpg [4, 5, 3]; all must have one shape",
    ),
    "nothing": ({}, "has no inputs"),
}


@pytest.mark.parametrize(("arrays", "message"), REFUSED.values(), ids=REFUSED)
def test_inputs_that_can_not_be_used(taken: list[Path], tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "inputs.npz", **arrays)
    with pytest.raises(EvidenceError) as refused:
        read_inputs(str(tmp_path / "inputs.npz"), taken)
    assert message in str(refused.value)


def zipped(header: bytes) -> bytes:
    """Return an `.npz` file of an array with this header."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("tall.jpg.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
    return content.getvalue()


FILES = {
    "empty": b"",
    "cut off": b"PK\3\4",
    "text": b"text",
    "missing": None,
    "no end": zipped(b"{'shape': ("),
    "too large": zipped(b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999999,)}"),
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_file_that_can_not_be_read(taken: list[Path], tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "inputs.npz").write_bytes(content)
    with pytest.raises(EvidenceError, match=r"inputs\.npz"):
        read_inputs(str(tmp_path / "inputs.npz"), taken)


def test_a_function_of_a_path(taken: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "import numpy as np\n\ndef ones(path):\n    return np.ones((4, 4, 3))\n\ndef wrong(path):\n    return 1 / 0\n"
    )
    (tmp_path / "own_preparation.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    inputs = read_inputs("own_preparation:ones", taken)
    assert (3, (4, 4)) == (len(inputs.photos), inputs.size)
    with pytest.raises(
        EvidenceError, match=r"own_preparation:wrong failed with ZeroDivisionError for .*\.(jpg|png): div"
    ):
        read_inputs("own_preparation:wrong", taken)


def test_functions_and_arrays_in_python(taken: list[Path]) -> None:
    def fails(_path: str) -> None:
        raise KeyError("scale")

    with pytest.raises(EvidenceError, match=r"^the input for \S+ is not an array: setting an array element"):
        read_inputs(lambda _path: [[1], [2, 3]], taken)
    arrays = {path.name: np.ones((4, 4, 3)) for path in taken}
    assert 3 == len(read_inputs(arrays, taken).photos)
    assert 3 == len(read_inputs({Path(name): array for name, array in arrays.items()}, taken).photos)
    assert 3 == len(read_inputs(lambda path: arrays[Path(path).name], taken).photos)
    with pytest.raises(EvidenceError, match=r"fails failed with KeyError for .*: 'scale'"):
        read_inputs(fails, taken)
    with pytest.raises(EvidenceError, match=r"^exit failed with SystemExit for "):
        read_inputs(sys.exit, taken)
    with pytest.raises(EvidenceError, match=r"^the dict has the key 1: must be the names of the photos' files$"):
        read_inputs({1: np.ones((4, 4, 3))}, taken)
    with pytest.raises(EvidenceError, match=r"^the dict has no inputs$"):
        read_inputs({}, taken)
    with pytest.raises(EvidenceError, match=r"^the dict has inputs for 1 photos, but 'x\.jpg' is not the name"):
        read_inputs({"x.jpg": np.ones((4, 4, 3))}, taken)
    unnamed: Any = list(arrays.values())
    with pytest.raises(EvidenceError, match=r"^the list has no names of photos: inputs must be a file, a dict by"):
        read_inputs(unnamed, taken)


def test_a_name_of_several_photos(tmp_path: Path) -> None:
    photos = [tmp_path / "cat/1.png", tmp_path / "dog/1.png"]
    assert {photos[1]: 0} == by_photo({"dog/1.png": 0}, photos, "it has inputs")
    with pytest.raises(EvidenceError, match=r"^it has inputs for '1\.png', but 2 photos have that name: must be"):
        by_photo({"1.png": 0}, photos, "it has inputs")


def test_a_search_without_time_says_so(taken: list[Path], tmp_path: Path) -> None:
    prepare, _ = PIPELINES["load_img"]
    np.savez(tmp_path / "inputs.npz", **{path.name: prepare(path) for path in taken})
    with pytest.raises(EvidenceError, match=r"has not ended within 0\.1 s; pass smaller photos"):
        judge(read_inputs(str(tmp_path / "inputs.npz"), taken), {}, seconds=0.1)


def test_of_many_photos_the_smallest_of_each_shape_that_are_large_enough_are_compared(tmp_path: Path) -> None:
    photos = [tmp_path / f"{side}.png" for side in (3000, *range(20, 30))]
    for photo in photos:
        Image.new("1", (int(photo.stem), 1000)).save(photo)
    np.savez(tmp_path / "inputs.npz", **{photo.name: np.zeros((4, 4, 3)) for photo in photos})
    used = read_inputs(str(tmp_path / "inputs.npz"), photos).photos
    assert ["29.png", "3000.png", *(f"{side}.png" for side in range(28, 22, -1))] == [photo.name for photo in used]


def test_twelve_bits_in_sixteen(tmp_path: Path) -> None:
    """Their white is the lowest usual one that they do not exceed; the distance is in levels of that."""
    levels = np.random.default_rng(0).integers(0, 4096, (40, 52, 3)).astype(np.uint16)
    with (tmp_path / "deep.png").open("wb") as file:
        png.Writer(52, 40, bitdepth=16, greyscale=False).write(file, levels.reshape(40, -1).tolist())

    def prepare(path: Path) -> np.ndarray:
        image = tf.io.decode_png(path.read_bytes(), channels=3, dtype=tf.uint16)
        return np.asarray(tf.image.resize(tf.cast(image, tf.float32) / 4095, (SIZE, SIZE)))

    judgement = judged([tmp_path / "deep.png"], prepare, tmp_path, crop="none")
    found = {name: judgement.values[name] for name in ("white", "scale", "resize", "channels")}
    assert {"white": 4095, "scale": "0..1", "resize": "bilinear", "channels": "RGB"} == found
