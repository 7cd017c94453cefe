"""Preparations that `--like` names: functions, torchvision's weights, and files of timm and Hugging Face."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe import complete_recipe
from savedmodel_bakery.exporter.sources import read_preprocessing, training_code

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
TIMM = {"input_size": [3, 224, 224], "interpolation": "bicubic", "crop_pct": 0.9, **IMAGENET}
PROCESSOR = {
    "image_processor_type": "ConvNextImageProcessor",
    "do_resize": True,
    "size": {"shortest_edge": 224},
    "crop_pct": 0.875,
    "resample": 3,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": IMAGENET["mean"],
    "image_std": IMAGENET["std"],
}
CLIP = {
    **{key: value for key, value in PROCESSOR.items() if key != "crop_pct"},
    "image_processor_type": "CLIPImageProcessor",
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
}
VIT = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 224, "width": 192},
    "resample": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
PILLOW = {"antialias": True, "channels": "RGB"}
SQUARE = {"size": (224, 224), "resize": "bicubic", "scale": "imagenet", **PILLOW}
KNOWN = {
    "timm": (TIMM, {**SQUARE, "crop": "short:248", "crop_margin": "even"}),
    "timm, in the file of a model": (
        {"architecture": "resnet50", "pretrained_cfg": {**TIMM, "crop_pct": 0.875, "interpolation": "bilinear"}},
        {**SQUARE, "crop": "short:256", "crop_margin": "even", "resize": "bilinear"},
    ),
    "ConvNeXT": (PROCESSOR, {**SQUARE, "crop": "short:256", "crop_margin": "down"}),
    "ConvNeXT, large": (
        {**PROCESSOR, "size": {"shortest_edge": 384}},
        {**SQUARE, "size": (384, 384), "crop": "none"},
    ),
    "CLIP": (CLIP, {**SQUARE, "crop": "short:224", "crop_margin": "down"}),
    "ViT": (VIT, {"size": (224, 192), "crop": "none", "resize": "bilinear", "scale": "-1..1", **PILLOW}),
    "not normalised": (
        {**VIT, "do_normalize": False},
        {"size": (224, 192), "crop": "none", "resize": "bilinear", "scale": "0..1", **PILLOW},
    ),
    "own mean": (
        {**VIT, "image_mean": [0.1, 0.2, 0.3], "rescale_factor": 1 / 127.5},
        {
            "size": (224, 192),
            "crop": "none",
            "resize": "bilinear",
            "scale": "12.75,25.5,38.25:63.75,63.75,63.75",
            **PILLOW,
        },
    ),
}


def written(folder: Path, content: Any) -> str:
    (folder / "config.json").write_text(json.dumps(content))
    return str(folder / "config.json")


@pytest.mark.parametrize(("content", "expected"), KNOWN.values(), ids=KNOWN)
def test_a_file_is_read(tmp_path: Path, content: dict[str, Any], expected: dict[str, Any]) -> None:
    values = read_preprocessing(written(tmp_path, content))
    assert expected == values
    complete_recipe(values, {"model": "m", "task": "embed"})


REJECTED = {
    "no such weights": ("torchvision:ResNet50", "torchvision 0.29 has no such weights for classification;"),
    "missing": ("missing.json", "cannot read missing.json: "),
    "another file": ({"a": 1}, "is neither a config.json of timm nor a preprocessor_config.json of Hugging Face"),
    "a list": ([], "is neither a config.json of timm nor"),
    "not square": ({**TIMM, "input_size": [3, 224, 192]}, "input_size [3, 224, 192] is not that of square"),
    "squashed": ({**TIMM, "crop_mode": "squash"}, "crop_mode 'squash' cannot be honoured: the recipe has the"),
    "random": ({**TIMM, "interpolation": "random"}, "interpolation 'random' is not one of bilinear, bicubic, lanczos"),
    "no mean": ({"interpolation": "bicubic"}, "config.json does not state 'mean'"),
    "unknown key": ({**VIT, "do_tile": True}, "do_tile True cannot be honoured; it has no field in the recipe"),
    "padded": ({**VIT, "do_pad": True}, "do_pad True cannot be honoured: the recipe has no such step"),
    "not resized": ({**VIT, "do_resize": False}, "do_resize False cannot be honoured: the recipe has a resized photo"),
    "box filter": ({**VIT, "resample": 4}, "resample 4 is not one of 1 (lanczos3), 2 (bilinear), 3 (bicubic)"),
    "longest edge": ({**VIT, "size": {"longest_edge": 800}}, "size {'longest_edge': 800} with do_center_crop"),
}  # fmt: skip


@pytest.mark.parametrize(("like", "message"), REJECTED.values(), ids=REJECTED)
def test_what_a_recipe_cannot_do_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, like: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError) as rejected:
        read_preprocessing(like if isinstance(like, str) else written(tmp_path, like))
    assert message in str(rejected.value)


def test_weights_of_torchvision() -> None:
    assert {**SQUARE, "crop": "short:232", "resize": "bilinear"} == read_preprocessing(
        "torchvision:ResNet50_Weights.IMAGENET1K_V2"
    )
    names = [name for group in training_code.torchvision_groups() for name in group["names"].split()]
    assert sorted(set(names)) == sorted(names)
    for name in names:
        complete_recipe(read_preprocessing(f"torchvision:{name}"), {"model": "m", "task": "embed"})


def test_functions() -> None:
    assert {"crop": "none", "resize": "bilinear", "antialias": False} == read_preprocessing("tf.image.resize")
    assert "nearest" == read_preprocessing("load_img")["resize"]
    assert "fast" == read_preprocessing("image_dataset_from_directory")["jpeg_dct"]


def test_a_network_and_the_function_that_reads_its_photos() -> None:
    """The function reads RGB, which `preprocess_input` of ResNet50 turns."""
    network, function = (read_preprocessing(name) for name in ("keras:ResNet50", "image_dataset_from_directory"))
    assert {**function, **network} == read_preprocessing("keras:ResNet50,image_dataset_from_directory")
    with pytest.raises(RecipeError, match=r"keras:ResNet50 has resize bilinear, load_img has nearest"):
        read_preprocessing("load_img,keras:ResNet50")
