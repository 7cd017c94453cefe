"""Parity on real photos: the right recipe agrees closely, and every wrong one is detected."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_models
from photos import labelled_photos
from PIL import Image

from savedmodel_bakery.errors import ParityError
from savedmodel_bakery.exporter import resources, sources
from savedmodel_bakery.exporter.recipe import Recipe, complete_recipe
from savedmodel_bakery.exporter.servable_module import ServableModule
from savedmodel_bakery.exporter.sources.network import Network
from savedmodel_bakery.exporter.tasks.classify import Classify
from savedmodel_bakery.exporter.tasks.task import Doubt, Tolerance
from savedmodel_bakery.exporter.tasks.unlabelled import Regress
from savedmodel_bakery.exporter.validation import reference
from savedmodel_bakery.exporter.validation.other_values import OtherValues
from savedmodel_bakery.exporter.validation.parity import ParityCheck, recipe_doubts
from savedmodel_bakery.exporter.validation.report import ParityReport, PhotoParity, PhotoPictures, write_html_page
from savedmodel_bakery.exporter.validation.session import PhotoResponse

OWN = {"model": "efficientnet-lite0"}
TOLERANCE = Classify.tolerance
SIDE, CLASSES = 7, 10  # of the small network
SMALL_NAMES = [f"class {number}" for number in range(CLASSES)]


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photo stored on its side, with the EXIF orientation that turns it upright."""
    path = tmp_path_factory.mktemp("turned") / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(resources.folder("examples") / "rocket.jpg") as photo:
        photo.transpose(Image.Transpose.ROTATE_90).save(path, quality=95, exif=exif)
    return path


def responses_of(servable: ServableModule, photos: list[Path]) -> list[PhotoResponse]:
    """Run photos through signatures without a Session, eagerly; other tests show that a Session returns the same."""
    responses = []
    for photo in photos:
        tf.config.run_functions_eagerly(True)
        try:
            best, preprocessed = (
                servable.functions[name](tf.constant([photo.read_bytes()])) for name in ("top_k", "preprocess")
            )
        finally:
            tf.config.run_functions_eagerly(False)
        answers = {"top_k": {alias: tensor.numpy()[0] for alias, tensor in best.items()}}
        error = answers["top_k"]["error"].decode()
        responses.append(PhotoResponse(photo, error, answers, preprocessed["pixels"].numpy()[0]))
    return responses


@pytest.fixture(scope="module")
def small() -> Network:
    """A network that tells colours and corners apart, trained with the recipe of EfficientNet-Lite0."""
    weights = np.random.default_rng(0).normal(size=(SIDE * SIDE * 3, CLASSES)).astype(np.float32)

    def call(pixels: tf.Tensor) -> tf.Tensor:
        cells = tf.reshape(tf.nn.avg_pool2d(pixels, 224 // SIDE, 224 // SIDE, "VALID"), [-1, SIDE * SIDE * 3])
        return tf.nn.softmax(cells @ weights)

    return Network(call, {"labels": "imagenet", "outputs": "probabilities", **sources.read_preprocessing(OWN["model"])})


def report_on(network: Network, names: list[str], photos: list[Path], **changes: Any) -> ParityReport:
    """Compare a graph that is baked with changed values of the recipe."""
    baked = complete_recipe(network.recipe, OWN | changes)
    servable = ServableModule(network.call, baked, names)
    check = ParityCheck(network, baked, servable.task, TOLERANCE)
    check.add(responses_of(servable, photos))
    return check.report()


WRONG = {
    "wrong order of colours": {"channels": "BGR"},
    "another network's mean and deviation": {"scale": "imagenet"},
    "antialiased": {"antialias": True},
    "whole image stretched": {"crop": "none"},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_a_wrong_recipe_is_detected(small: Network, changes: dict[str, Any]) -> None:
    """On the default photos of a bake; the message names the field that differs from the source's recipe."""
    result = report_on(small, SMALL_NAMES, resources.example_photos(), **changes)
    [(name, value)] = changes.items()
    assert {name} == result.departures.keys()
    with pytest.raises(ParityError, match=rf"; {name} is {value}, the source uses "):
        result.check()


@pytest.mark.slow
def test_a_wrong_recipe_is_detected_by_a_real_network() -> None:
    """Each of the recipes above."""
    network = sources.read_network(OWN)
    names = resources.read_class_names("imagenet")
    undetected = [
        name for name, changes in WRONG.items()
        if report_on(network, names, resources.example_photos(), **changes).is_within
    ]  # fmt: skip
    assert [] == undetected


def test_the_right_recipe_agrees_also_on_a_turned_photo(small: Network, turned: Path) -> None:
    report_on(small, SMALL_NAMES, [*resources.example_photos(), turned]).check()


def test_a_recipe_that_ignores_the_orientation_is_followed(small: Network, turned: Path) -> None:
    report_on(small, SMALL_NAMES, [turned], orientation="ignore").check()


def test_a_second_image_is_compared_by_its_own_preprocessing(recipe_of: Callable[..., Recipe], turned: Path) -> None:
    """Its pixels, what the network makes of them, and what the source knows of it."""
    photo, size = resources.example_photos()[0], (6, 4)
    recipe = recipe_of(
        task="regress", labels=None, outputs=None, image_2={"size": size, "crop": "letterbox", "channels": "BGR"}
    )
    network = Network(lambda _, image_2: tf.reduce_mean(image_2, [1, 2]), {"image_2": {"size": size}})
    pixels, second = (
        reference.fit(reference.read_upright(path, each), each)
        for path, each in ((photo, recipe.preprocessing), (turned, recipe.second_preprocessing))
    )
    blue_first = reference.normalise(second[np.newaxis], recipe.second_preprocessing).mean((0, 1, 2))
    right = PhotoResponse(
        photo,
        "",
        {"serving_default": dict(zip("bgr", blue_first, strict=True))},
        pixels,
        OtherValues(second=turned),
        second,
    )

    def report(response: PhotoResponse, recipe: Recipe = recipe, network: Network = network) -> ParityReport:
        check = ParityCheck(network, recipe, Regress(("b", "g", "r")), Regress.tolerance)
        check.add([response])
        return check.report()

    assert report(right).is_within
    assert not report(dataclasses.replace(right, second_pixels=second + 2)).is_within
    other = recipe.with_(image_2={"size": (4, 6), "crop": "letterbox", "channels": "BGR"})
    assert {"image_2.size": ((4, 6), (6, 4))} == report(right, other).departures
    scaling = dataclasses.replace(network, scaling_layer="scale", scales_second=False)
    [doubt] = report(right, recipe.with_(scale="0..255"), scaling).doubts
    assert "the layer 'scale' scales the first image only, and image_2 has the scale 0..255 too" in doubt


class TestReport:
    """Reports without a network."""

    WITHIN = PhotoParity("a.jpg", 0.1, 2.0, 0.001, "cat 0.5000", "cat 0.5010", is_within=True)
    BEYOND = dataclasses.replace(WITHIN, photo="b.jpg", difference=0.25, is_within=False)
    UNREADABLE = PhotoParity("<c>.jpg", error="damaged & cut off")

    def report(self, *photos: PhotoParity) -> ParityReport:
        return ParityReport("flowers", {"crop": ("none", "7/8")}, "score difference", TOLERANCE, 0.5, photos)

    def test_within(self) -> None:
        self.report(self.WITHIN).check()

    def test_a_caveat_of_every_photo_is_a_warning(self) -> None:
        empty = dataclasses.replace(self.WITHIN, caveat="no boxes were compared")
        assert "" == self.report(empty, self.WITHIN).warning
        advice = "pass photos that show the model's labels with --photos FOLDER"
        assert f"on the only photo no boxes were compared; {advice}" == self.report(empty).warning
        report = self.report(empty, empty)
        report.check()
        assert f"on all 2 photos no boxes were compared; {advice}" == report.warning == report.to_json()["warning"]

    def test_a_doubt_counts_if_all_photos_that_compare_anything_have_it(self) -> None:
        doubt = Doubt("the scores are odd", "0.1 to 0.9", "pass --even")
        doubtful = dataclasses.replace(self.WITHIN, doubts=(doubt,))
        empty = dataclasses.replace(self.WITHIN, caveat="no boxes were compared")
        assert "" == self.report(doubtful, self.WITHIN).warning
        text = "the scores are odd on {} (0.1 to 0.9 on a.jpg); pass --even"
        for photos, where in (
            ([doubtful], "the only photo"),
            ([doubtful, doubtful], "all 2 photos"),
            ([doubtful, empty, self.UNREADABLE, doubtful], "2 photos"),
        ):
            report = self.report(*photos)
            assert (text.format(where), "") == (report.warning, report.contradiction)

    def test_a_contradiction_is_an_error(self) -> None:
        doubt = Doubt("the boxes are far outside", "10 to 95", "bake with --box-unit pixels", is_error=True)
        report = self.report(dataclasses.replace(self.WITHIN, doubts=(doubt,)))
        assert ("", False) == (report.warning, report.is_within)
        message = "the boxes are far outside on the only photo (10 to 95 on a.jpg); bake with --box-unit pixels"
        assert message == report.to_json()["contradiction"]
        with pytest.raises(ParityError, match=re.escape(f"{message}; --no-parity publishes it anyway")):
            report.check("; --no-parity publishes it anyway")

    def test_the_worst_photo_is_named(self) -> None:
        with pytest.raises(ParityError, match=r"on b\.jpg .* score difference 0\.25 \(allowed: 0\.01 \+ 0 of the"):
            self.report(self.WITHIN, self.BEYOND).check()
        with pytest.raises(ParityError, match=r" difference 0\.25 \(allowed: 0\), pixels"):
            dataclasses.replace(self.report(self.BEYOND), tolerance=Tolerance()).check()
        with pytest.raises(ParityError, match=r"cannot read <c>\.jpg: damaged & cut off"):
            self.report(self.WITHIN, self.BEYOND, self.UNREADABLE).check()

    def test_json(self) -> None:
        content = json.loads(json.dumps(self.report(self.WITHIN, self.UNREADABLE).to_json()))
        assert not content["is_within"]
        assert {"crop": {"baked": "none", "reference": "7/8"}} == content["departures"]
        assert ["a.jpg", "<c>.jpg"] == [photo["photo"] for photo in content["photos"]]

    def test_text(self) -> None:
        expected = "<ParityReport: beyond tolerance on 2 photos; farthest b.jpg: score difference 0.25>"
        assert expected == repr(self.report(self.WITHIN, self.BEYOND))

    def test_table(self) -> None:
        _, within, beyond, unreadable = self.report(self.WITHIN, self.BEYOND, self.UNREADABLE).to_table().splitlines()
        assert ["a.jpg", "0.100", "2.0", "0.0010", "cat", "0.5000", "cat", "0.5010", "within"] == within.split()
        assert beyond.endswith("BEYOND")
        assert unreadable.endswith("cannot be read: damaged & cut off")

    def test_the_page_needs_no_other_file_and_escapes_names_and_errors(self, tmp_path: Path) -> None:
        """File names and errors can contain anything, and must not become markup."""
        gray = np.full((4, 4, 3), 128.0)
        pictures = [
            PhotoPictures(photo, Image.new("RGB", (8, 8)), gray, gray + 2) for photo in (self.WITHIN, self.UNREADABLE)
        ]
        report = dataclasses.replace(self.report(self.WITHIN, self.BEYOND, self.UNREADABLE), pictures=pictures)
        write_html_page(tmp_path / "p.html", report)
        content = (tmp_path / "p.html").read_text()
        assert f'<iframe srcdoc="{html.escape(content)}" ' in report._repr_html_()
        assert 8 == len(re.findall(r'<img src="data:image/(?:jpeg|png);base64,', content))
        assert 8 == content.count("src=")
        assert "http" not in content
        assert "&lt;c&gt;.jpg" in content
        assert "damaged &amp; cut off" in content
        assert "The 2 farthest from the reference are shown." in content

    def test_the_page_has_the_warning(self, tmp_path: Path) -> None:
        report = self.report(dataclasses.replace(self.WITHIN, caveat="every pixel is 'sky'"))
        write_html_page(tmp_path / "p.html", report)
        assert "on the only photo every pixel is &#39;sky&#39;; pass photos" in (tmp_path / "p.html").read_text()

    def test_a_page_that_cannot_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(ParityError, match=r"cannot write the report to .*: No such file or directory"):
            write_html_page(tmp_path / "none" / "p.html", self.report())


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "savedmodel_bakery.exporter", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


class TestProgram:
    def test_parity_of_a_published_version_on_labelled_photos(self, lite0: Path, tmp_path: Path) -> None:
        """And on a TIFF, which Pillow can read and TensorFlow cannot."""
        folder = tmp_path / "photos"
        folder.mkdir()
        for photo in labelled_photos():
            (folder / photo.name).symlink_to(photo)
        Image.new("RGB", (8, 8)).save(folder / "odd.tiff")
        (folder / "odd.tiff").rename(folder / "odd.jpg")
        ended = run("parity", lite0 / "1", "--photos", folder, "--json", "--parity-html", tmp_path / "p.html")
        assert 1 == ended.returncode
        assert ended.stderr.splitlines()[-1].startswith("error: the baked graph cannot read odd.jpg: ")
        photos = json.loads(ended.stdout)["photos"]
        [odd] = [photo for photo in photos if photo["photo"] == "odd.jpg"]
        assert odd["error"].startswith("TIFF, which TensorFlow cannot decode")
        photos.remove(odd)
        assert 20 == len(photos)
        for photo in photos:
            assert photo["is_within"]
            assert photo["answer"][:-7] == photo["reference_answer"][:-7]  # the labels
            assert photo["difference"] < 0.002
            assert photo["pixels_mean"] < 0.02
        assert (tmp_path / "p.html").stat().st_size > 100_000

    def test_bake_names_the_photo_that_it_cannot_read(self, tmp_path: Path, turned: Path) -> None:
        """A folder that is named like a photo is ignored."""
        photos = tmp_path / "photos"
        (photos / "holiday.jpg").mkdir(parents=True)
        (photos / "good.jpg").write_bytes(turned.read_bytes())
        Image.new("RGB", (8, 8)).save(photos / "odd.tiff")
        (photos / "odd.tiff").rename(photos / "odd.png")
        tiny_models.write_workshop(tmp_path)
        ended = tiny_models.run(tmp_path, *tiny_models.bake_arguments("out"), "--photos", str(photos))
        assert (1, "") == (ended.code, ended.stdout)
        message = f"error: the baked graph cannot read {photos / 'odd.png'}: TIFF, which TensorFlow cannot decode"
        assert ended.stderr.splitlines()[-1].startswith(message)
        assert [] == list((tmp_path / "out").glob("*/*"))

    def test_a_page_in_a_missing_folder_is_rejected_before_any_work(self, tmp_path: Path) -> None:
        page = tmp_path / "none" / "p.html"
        ended = run("bake", "--model", "efficientnet-lite0", "--out", tmp_path, "--parity-html", page)
        assert [f"error: cannot write the report to {page}: no such folder {page.parent}"] == (
            ended.stderr.splitlines()
        )

    def test_no_photos(self, lite0: Path, tmp_path: Path) -> None:
        ended = run("parity", lite0 / "1", "--photos", tmp_path)
        assert f"error: no photos in {tmp_path}: file names must end in .jpg, " in ended.stderr
        assert 1 == ended.returncode

    def test_another_savedmodel_is_rejected(self, tmp_path: Path) -> None:
        (tmp_path / "saved_model.pb").touch()
        ended = run("parity", tmp_path)
        assert f"error: no assets.extra/recipe.toml in {tmp_path}: pass the folder of a version" in ended.stderr
        assert 1 == ended.returncode

    @pytest.mark.slow
    def test_bake_rejects_a_wrong_recipe_and_writes_the_page(self, tmp_path: Path) -> None:
        options = ("--channels", "BGR", "--out", tmp_path / "out", "--parity-html", tmp_path / "p.html")
        ended = run("bake", "--model", "efficientnet-lite0", *options)
        assert (1, "") == (ended.returncode, ended.stdout)
        (message,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
        assert "channels is BGR, the source uses RGB; --parity-html shows it, --no-parity publishes it" in message
        assert [] == list((tmp_path / "out").glob("*/*"))
        assert "The baked recipe has channels BGR" in (tmp_path / "p.html").read_text()


class TestDoubts:
    """What is implausible about a recipe, whatever the photos show."""

    @pytest.mark.parametrize(
        ("application", "changes", "doubt"),
        [
            (None, {"scale": "caffe"}, "scale caffe with channels RGB: networks with this scale were trained on BGR"),
            ("MobileNetV2", {"scale": "0..1"}, "trained with scale -1..1 and channels RGB;"),
            ("ResNet50", {"scale": "-1..1"}, "trained with scale caffe and channels BGR; if"),
        ],
    )
    def test_of_scale_and_channels(
        self, small: Network, application: str | None, changes: dict[str, str], doubt: str
    ) -> None:
        [line] = self.doubts(small, application, changes)
        assert doubt in line
        assert line.endswith("check --channels" if application is None else f"--like keras:{application}")

    @pytest.mark.parametrize(
        ("application", "changes"),
        [
            (None, {"scale": "caffe", "channels": "BGR"}),
            ("MobileNetV2", {"scale": "-1..1"}),
            ("VGG16", {"like": "keras:VGG16"}),
        ],
    )
    def test_none_of_the_usual(self, small: Network, application: str | None, changes: dict[str, str]) -> None:
        assert [] == self.doubts(small, application, changes)

    def test_of_an_orientation_that_the_training_ignored(self, small: Network) -> None:
        like = {"like": "image_dataset_from_directory"}
        [line] = self.doubts(small, None, {**like, "orientation": "exif"})
        assert line.startswith(
            "the recipe has orientation exif, but image_dataset_from_directory does not rotate photos"
        )
        assert [] == self.doubts(small, None, {**like, "orientation": "ignore"})

    @staticmethod
    def doubts(network: Network, application: str | None, changes: dict[str, str]) -> list[str]:
        recipe = complete_recipe(network.recipe, OWN | changes)
        return recipe_doubts(recipe.preprocessing, dataclasses.replace(network, application=application))

    def test_of_a_network_that_answers_all_photos_alike(self, small: Network) -> None:
        blind = dataclasses.replace(small, call=lambda pixels: tf.fill([tf.shape(pixels)[0], CLASSES], 1 / CLASSES))
        report = report_on(blind, SMALL_NAMES, resources.example_photos())
        assert "the network answers all photos alike, whatever they show" in report.warning
