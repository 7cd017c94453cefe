"""The recipe is found from what the network answered, or should have answered, and what contradicts it is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.errors import EvidenceError, LabelError
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.evidence import Judgement, Sources, answers, default_photos, judge_all
from savedmodel_bakery.exporter.evidence.answer_files import read_labelled, read_predictions
from savedmodel_bakery.exporter.evidence.answers import Predictions, Runner
from savedmodel_bakery.exporter.evidence.evidence import Certainty, Fit
from savedmodel_bakery.exporter.evidence.judge import _certainty
from savedmodel_bakery.exporter.evidence.search import Alternative, Found
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.sources.network import Network

SIZE = 24
RANDOM = np.random.default_rng(5)
WEIGHTS = RANDOM.normal(size=(8 * 8 * 3, 4)).astype(np.float32) / 3
LABELS = ("cat", "dog", "hare", "owl")
PHOTOS = {
    "wide.jpg": (101, 67),
    "tall.jpg": (61, 94),
    "odd.png": (57, 53),
    **{f"{n}.jpg": (70, 51 + n) for n in range(4)},
}


def logits(inputs: tf.Tensor) -> tf.Tensor:
    """Score the colours of 8 x 8 places."""
    return tf.reshape(tf.nn.avg_pool2d(inputs, 3, 3, "VALID"), [-1, 8 * 8 * 3]) @ WEIGHTS


def probabilities(inputs: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(logits(inputs))


def prepared(path: Path) -> np.ndarray:
    """What the training does."""
    image = tf.io.decode_image(path.read_bytes(), channels=3, expand_animations=False)
    return np.asarray(tf.image.resize(image, (SIZE, SIZE), "bicubic", antialias=True) / 127.5 - 1)[..., ::-1]


FOUND = {
    "crop": "none", "resize": "bicubic", "antialias": True, "scale": "-1..1", "channels": "BGR", "jpeg_dct": "fast",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, rocket: Image.Image) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number, (name, size) in enumerate(PHOTOS.items()):
        part = rocket.crop((80 * number, 40 * number, 80 * number + 160, 40 * number + 190))
        part.resize(size).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[str, np.ndarray]:
    """What the network answered, by the names of photos."""
    return {name: probabilities(prepared(folder / name)[np.newaxis]).numpy()[0] for name in PHOTOS}


def judged(folder: Path, source: Any, call: Callable[[Any], Any] = probabilities, **stated: Any) -> Judgement:
    names = folder.parent / f"{folder.name}.txt"
    names.write_text("\n".join(stated.pop("names", LABELS)))
    values = {"size": (SIZE, SIZE), "labels": str(names), **stated}
    is_labelled = isinstance(source, Path) and (source.is_dir() or source.name == "labels.csv")
    sources = Sources(labelled=source) if is_labelled else Sources(predictions=source)
    photos = sorted(folder.iterdir())
    (judgement,), _ = judge_all(sources, values, Network(call), photos, 60, progress=lambda _: None)
    return judgement


def write(path: Path, rows: Mapping[str, Any]) -> Path:
    if path.suffix == ".json":
        path.write_text(json.dumps({name: np.asarray(row).tolist() for name, row in rows.items()}))
    elif path.suffix == ".npz":
        np.savez(path, **{name: np.asarray(row) for name, row in rows.items()})
    return path


def test_the_recipe_is_found_from_predictions(folder: Path, tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    judgement = judged(folder, write(tmp_path / "predictions.npz", rows))
    assert FOUND == {name: judgement.values[name] for name in FOUND}
    assert ("probabilities", "found") == (judgement.values["outputs"], judgement.remarks["outputs"])
    assert judgement.distance < 1e-5


def test_of_many_predictions_the_doubtful_ones_are_compared(tmp_path: Path) -> None:
    """Answers without doubt hardly change with the pixels."""
    rows = {f"{number}.png": [0.5, 0.5] if number % 2 else [1.0, 0.0] for number in range(16)}
    for name in rows:
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    used = read_predictions(rows, sorted(tmp_path.iterdir()), Runner(Network(logits)), ()).photos
    assert {f"{number}.png" for number in range(1, 16, 2)} == {photo.name for photo in used}


def table(rows: Mapping[str, np.ndarray]) -> str:
    return "\n".join([",".join(["file", *LABELS]), *(",".join([name, *map(str, row)]) for name, row in rows.items())])


def best(rows: Mapping[str, np.ndarray]) -> str:
    tops = {name: int(row.argmax()) for name, row in rows.items()}
    return "\n".join(
        ["file,label,probability", *(f"{name},{LABELS[top]},{rows[name][top]}" for name, top in tops.items())]
    )


STATED = {name: value for name, value in FOUND.items() if name not in ("scale", "channels")}
FORMS: dict[str, Callable[[dict[str, np.ndarray]], str]] = {
    "table.csv": table,
    "best.csv": best,
    "without_header.csv": lambda rows: table(rows).partition("\n")[2],
    "paths.csv": lambda rows: table(rows).replace("odd.png", "./odd.png").replace("wide.jpg", "{folder}/wide.jpg"),
    "numbered.csv": lambda rows: "\n".join([",0,1,2,3", table(rows).partition("\n")[2]]),
    "backwards.csv": lambda rows: "\n".join(
        [",3,2,1,0", table({name: row[::-1] for name, row in rows.items()}).partition("\n")[2]]
    ),
    "semicolons.csv": lambda rows: table(rows).replace(",", ";"),
    "best_tabs.csv": lambda rows: best(rows).replace(",", "\t"),
    "labels.json": lambda rows: json.dumps(
        {name: dict(zip(LABELS, row.tolist(), strict=True)) for name, row in rows.items()}
    ),
    "lists.json": lambda rows: json.dumps({name: row.tolist() for name, row in rows.items()}),
}


@pytest.mark.parametrize("name", FORMS)
def test_predictions_are_read_as_people_save_them(
    folder: Path, tmp_path: Path, rows: dict[str, np.ndarray], name: str
) -> None:
    rounded = {name: row.astype(float).round(3) for name, row in rows.items()}
    (tmp_path / name).write_text(FORMS[name](rounded).replace("{folder}", str(folder)))
    tops = {name: {LABELS[row.argmax()]: row.max()} for name, row in rounded.items()}
    expected, read = (
        read_predictions(source, sorted(folder.iterdir()), Runner(Network(logits)), LABELS)
        for source in (tops if name.startswith("best") else rounded, tmp_path / name)
    )
    assert expected.digest == read.digest


ROUNDED: dict[str, tuple[float, Callable[[np.ndarray], Any]]] = {
    "float32": (1, lambda row: row.round(2)),
    "almost the same for each photo": (0.02, lambda row: {LABELS[row.argmax()]: float(row.max().round(2))}),
}


@pytest.mark.parametrize(("gain", "written"), ROUNDED.values(), ids=ROUNDED)
def test_rounded_predictions_agree(folder: Path, gain: float, written: Callable[[np.ndarray], Any]) -> None:
    """No recipe can come nearer than their rounding."""

    def network(inputs: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(gain * logits(inputs))

    rows = {name: written(network(prepared(folder / name)[np.newaxis]).numpy()[0]) for name in PHOTOS}
    judgement = judged(folder, rows, network, **FOUND)
    assert judgement.distance < 0.005


OWN_SCALE = np.float32([110.5, 99.25, 90]), np.float32([61, 60.5, 63.25])


def with_own_scale(folder: Path, call: Callable[[Any], Any]) -> dict[str, np.ndarray]:
    mean, std = OWN_SCALE
    rows = {}
    for name in PHOTOS:
        pixels = np.asarray(tf.image.resize(np.asarray(Image.open(folder / name)), (SIZE, SIZE)))
        rows[name] = call(((pixels - mean) / std)[np.newaxis]).numpy()[0]
    return rows


def test_no_scale_is_fitted_to_answers_without_doubts(folder: Path, tmp_path: Path) -> None:
    """Probabilities of 0 and 1 say little; many wrong recipes could be made to agree with them."""

    def sure(inputs: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(40 * logits(inputs))

    rows = write(tmp_path / "rows.npz", with_own_scale(folder, sure))
    with pytest.raises(EvidenceError, match=r"^no recipe makes these predictions: the nearest is"):
        judged(folder, rows, sure, crop="none", resize="bilinear", antialias=False)


def test_a_mean_and_deviation_of_no_name_are_found(folder: Path, tmp_path: Path) -> None:
    mean, std = OWN_SCALE
    rows = with_own_scale(folder, probabilities)
    judgement = judged(folder, write(tmp_path / "rows.npz", rows), crop="none", resize="bilinear", antialias=False)
    found_mean, found_std = (np.array(part.split(","), float) for part in judgement.values["scale"].split(":"))
    assert np.allclose(mean, found_mean, atol=0.5)
    assert np.allclose(std, found_std, rtol=0.01)
    assert judgement.remarks["channels"].startswith("found: ")


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "channels": ({"channels": "RGB"}, "with --channels BGR; channels RGB is stated"),
    "scale": ({"scale": "0..1"}, "with --scale -1..1; scale 0..1 is stated"),
    "resize": ({"resize": "nearest", "antialias": False}, "--resize bicubic"),
    "outputs": ({"outputs": "logits"}, "with --outputs probabilities; outputs logits is stated"),
    "order of labels": (
        {"names": ("dog", "cat", "hare", "owl")},
        "agree with another order of labels: cat, dog, hare, owl; write the --labels in the order of the network's",
    ),
}


@pytest.mark.parametrize(("stated", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_what_contradicts_predictions_is_named(
    folder: Path, tmp_path: Path, rows: dict[str, np.ndarray], stated: dict[str, Any], message: str
) -> None:
    (tmp_path / "table.csv").write_text(table(rows))
    with pytest.raises(EvidenceError) as refused:
        judged(folder, tmp_path / "table.csv", **stated)
    assert message in str(refused.value)


def test_logits_are_told_from_probabilities(folder: Path, tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    judgement = judged(folder, write(tmp_path / "rows.json", rows), logits, **STATED)
    assert "logits" == judgement.values["outputs"]


READINGS: dict[str, tuple[list[float], list[float], dict[str, str]]] = {
    "one number is no softmax": ([0.9997], [1], {"outputs": "probabilities"}),
    "a sigmoid and its complement": ([2], [0.1192, 0.8808], {"outputs": "logits"}),
    "opposite outputs": ([-2, 2], [0.018, 0.982], {"outputs": "logits", "task": "classify"}),
    "saturated": ([-90, 90, -90], [0, 1, 0], {"outputs": "logits"}),
}


@pytest.mark.parametrize(("outputs", "row", "follows"), READINGS.values(), ids=READINGS)
def test_what_predictions_say_of_outputs(outputs: list[float], row: list[float], follows: dict[str, str]) -> None:
    network = Network(lambda inputs: tf.reduce_mean(inputs, [1, 2, 3])[:, tf.newaxis] + outputs)
    recipe = Preprocessing(
        size=(SIZE, SIZE), crop="none", resize="bilinear", antialias=False, scale="0..1", channels="RGB"
    )
    evidence = Predictions([Path("odd.png")], np.array([row]), Runner(network))
    assert follows == evidence.fit(np.zeros((1, SIZE, SIZE, 3)), recipe).follows


def test_a_sigmoid_means_any_number_of_labels(folder: Path, tmp_path: Path) -> None:
    rows = {name: tf.sigmoid(logits(prepared(folder / name)[np.newaxis])).numpy()[0] for name in PHOTOS}
    judgement = judged(folder, write(tmp_path / "rows.json", rows), logits, **STATED)
    assert ("logits", "multilabel") == (judgement.values["outputs"], judgement.values["task"])
    with pytest.raises(EvidenceError, match=r"agree within \S+ with --task multilabel; task classify is stated$"):
        judged(folder, tmp_path / "rows.json", logits, **STATED, task="classify")


REFUSED: dict[str, tuple[str, str, str]] = {
    "no such photo": ("p.csv", "file,cat,dog,hare,owl\nsunset.jpg,1,0,0,0", "'sunset.jpg' is not the name of one of"),
    "no such label": ("p.csv", "file,label,probability\nodd.png,cow,1", "has the label 'cow', which is not one of"),
    "no number": ("p.csv", "file,cat,dog,hare,owl\nodd.png,1,0,0,x", "'x' is not a number: must be written like 0.935"),
    "decimal commas": ("p.csv", "odd.png;0,9;0,1;0;0", "'0,9' is not a number: must be written like 0.935"),
    "percent": ("p.csv", "file,label,probability\nodd.png,cat,93.5%", "'93.5%' is not a number: must be written like"),
    "no such photo first": ("p.csv", "sunset.jpg,1,0,0,0\nodd.png,1,0,0,0", "'sunset.jpg' is not the name of one of"),
    "photo twice": ("p.csv", "odd.png,1,0,0,0\nodd.png,0,1,0,0", "two different values for odd.png: must have one"),
    "photo by two paths": ("p.csv", "odd.png,1,0,0,0\n./odd.png,0,1,0,0", "/odd.png: must have one"),
    "label twice": ("p.csv", "file,label,probability\nodd.png,cat,1\nodd.png,cat,0", "for ('odd.png', 'cat'): must"),
    "photo twice in JSON": ("p.json", '{"odd.png": [1, 0], "odd.png": [0, 1]}', "two different values for odd.png"),
    "not finite": ("p.json", '{"odd.png": [1, 0, 0, NaN]}', "the predictions for odd.png must be finite numbers"),
    "not finite for a label": ("p.csv", "file,cat,dog\nodd.png,1,nan", "the predictions for odd.png must be finite"),
    "too large": ("p.json", '{"odd.png": [1' + "0" * 400 + "]}", "the predictions for odd.png must be finite numbers"),
    "too few": ("p.json", '{"odd.png": [1, 0]}', "the predictions have 2 numbers per photo, the network returns 4"),
    "two lengths": ("p.json", '{"odd.png": [1, 0], "tall.jpg": [1, 0, 0, 0]}', "has 2 numbers for odd.png, and 4"),
    "no number in JSON": ("p.json", '{"odd.png": {"cat": "high"}}', "the predictions for odd.png must be"),
    "nested too deeply": ("p.json", '{"odd.png": ' + "[" * 10**5, "cannot read the predictions in"),
    "a short row": ("p.csv", "file,cat,dog,hare,owl\nodd.png,1,0", "row 2 has 2 values after the file, the first row"),
    "a list": ("p.json", "[1]", "must be an object: predictions by the name of a photo's file"),
    "another format": ("p.txt", "1", "must be a .csv, .json or .npz file, or MODULE:FUNCTION"),
    "nothing": ("p.csv", "", "has no predictions"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), REFUSED.values(), ids=REFUSED)
def test_predictions_that_cannot_be_used(folder: Path, tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(EvidenceError) as refused:
        judged(folder, tmp_path / name)
    assert message in str(refused.value)


@pytest.mark.parametrize("names", [LABELS[:3], LABELS[:2]])
def test_labels_that_are_not_those_of_the_outputs(
    folder: Path, tmp_path: Path, rows: dict[str, np.ndarray], names: tuple[str, ...]
) -> None:
    """Predictions without names, and photos that lack the missing labels, would agree."""
    (tmp_path / "labels.csv").write_text("odd.png,dog")
    for source in (rows, tmp_path / "labels.csv"):
        with pytest.raises(LabelError, match=rf"^the network has 4 classes, but labels '\S+' have {len(names)}"):
            judged(folder, source, names=names)


NO_NUMBERS = {"complex numbers": [1j, 0, 0, 0], "dates": np.zeros(4, "datetime64[s]"), "text": ["1", "0", "0", "0"]}


@pytest.mark.parametrize("row", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_predictions_that_are_no_numbers(folder: Path, row: Any) -> None:
    with pytest.raises(EvidenceError, match=r"^the dict: the predictions for odd\.png must be finite numbers"):
        judged(folder, {"odd.png": row})


LABELS_REFUSED = {
    "no separator": ("odd.png cat", "a row has only 'odd.png cat': must be file and label, separated by a comma"),
    "photo twice": ("filename;label\nodd.png;cat\nodd.png;dog", "two different values for odd.png: must have one"),
    "comma in a label": ('"odd.png";cat, small', "has the label 'cat, small', which is not one of the 4 of --labels"),
    "no such photo first": ("sunset.jpg,cat\nodd.png,cat", "'sunset.jpg' is not the name of one of"),
    "field too long": ("x" * 2**18, "field larger than field limit"),
    "only blank rows": (" \n,,\n", "has no labelled photos"),
}


@pytest.mark.parametrize(("content", "message"), LABELS_REFUSED.values(), ids=LABELS_REFUSED)
def test_labels_that_cannot_be_used(folder: Path, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(EvidenceError) as refused:
        read_labelled(tmp_path / "labels.csv", sorted(folder.iterdir()), Runner(Network(logits)), LABELS)
    assert message in str(refused.value)


def test_labels_are_the_folders_of_the_first_level(folder: Path, tmp_path: Path) -> None:
    """Photos may be in folders below them; hidden files and folders, and folders without photos, are left out."""
    files = ("cat/1.png", "cat/._1.png", "owl/deep/er/1.png", "owl/.thumbnails/1.png", ".trash/1.png")
    for name in (*files, "hare/notes.txt", "__pycache__/module.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "odd.png", tmp_path / name)
    evidence = read_labelled(tmp_path, [], Runner(Network(logits)), LABELS)
    assert [tmp_path / "cat/1.png", tmp_path / "owl/deep/er/1.png"] == sorted(evidence.photos)
    assert evidence.photos == default_photos(tmp_path)


def test_a_folder_without_labelled_photos_is_not_validated_on(folder: Path) -> None:
    assert resources.example_photos() == default_photos(folder) == default_photos(folder / "odd.png")


COLOURS = {"blue": (20, 40, 200), "green": (30, 180, 60), "red": (210, 30, 40)}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven photos of each colour, with noise."""
    folder = tmp_path_factory.mktemp("labelled")
    for label, colour in COLOURS.items():
        (folder / label).mkdir()
        for number in range(7):
            noise = RANDOM.normal(colour, 40, (40 + number, 50, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(noise).save(folder / label / f"{number}.png")
    return folder


def colours(inputs: tf.Tensor) -> tf.Tensor:
    """The network: trained on RGB, 0..1; its outputs are blue, green, red."""
    return tf.nn.softmax(20 * tf.reduce_mean(inputs, [1, 2])[:, ::-1])


GEOMETRY = {"crop": "none", "resize": "bilinear", "antialias": False, "names": tuple(COLOURS)}


def test_labelled_photos_tell_the_order_of_colours(labelled: Path) -> None:
    judgement = judged(labelled, labelled, colours, **GEOMETRY, scale="0..1")
    assert ("RGB", "probabilities") == (judgement.values["channels"], judgement.values["outputs"])
    assert "labelled photos" == judgement.kind
    assert "accuracy 1.00" in judgement.summary
    assert ("not compared", "of no effect on these photos") == tuple(
        judgement.remarks[name] for name in ("jpeg_dct", "alpha")
    )


LABELLED_CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "channels": ({"channels": "BGR", "scale": "0..1"}, "agree best (accuracy 1.00, "),
    "order of labels": (
        {"scale": "0..1", "channels": "RGB", "names": ("green", "red", "blue")},
        "agree with another order of labels: blue, green, red;",
    ),
}


@pytest.mark.parametrize(("stated", "message"), LABELLED_CONTRADICTIONS.values(), ids=LABELLED_CONTRADICTIONS)
def test_what_contradicts_labels_is_named(labelled: Path, stated: dict[str, Any], message: str) -> None:
    with pytest.raises(EvidenceError) as refused:
        judged(labelled, labelled, colours, **{**GEOMETRY, **stated})
    assert message in str(refused.value)


def test_labelled_photos_do_not_take_a_more_confident_answer_for_a_better_one(labelled: Path) -> None:
    with pytest.raises(EvidenceError, match=r"^these labelled photos agree with --scale \S+ and --scale \S+ alike: ac"):
        judged(labelled, labelled, colours, **GEOMETRY, channels="RGB")


def test_labelled_photos_do_not_judge_the_resize() -> None:
    """A network is not always best with that of its training."""
    evidence = answers.Labelled([Path("odd.png")] * 20, np.zeros(20, int), Runner(Network(logits)))
    recipe = Preprocessing(size=(SIZE, SIZE), **{**STATED, "scale": "0..1", "channels": "RGB"})
    best, worse = (Fit.of_losses(loss + RANDOM.normal(0, 0.1, 20), {}) for loss in (0, 1))
    found, other = Found(recipe, best, {}), Alternative(None, worse)
    assert (Certainty.NOT_TOLD, Certainty.SURE) == tuple(
        _certainty(evidence, name, found, other) for name in ("resize", "scale")
    )


def test_answers_that_are_no_better_than_chance_are_called_so(labelled: Path) -> None:
    judgement = judged(labelled, labelled, lambda inputs: colours(inputs * 0), **GEOMETRY, scale="0..1", channels="RGB")
    assert judgement.summary.endswith("which is not surely better than chance")


@pytest.mark.parametrize(("normal", "freedom", "quantile"), [(2.576, 9, 3.250), (2.576, 59, 2.662), (3.719, 59, 3.967)])
def test_quantiles_of_student(normal: float, freedom: int, quantile: float) -> None:
    assert answers._student(normal, freedom) == pytest.approx(quantile, abs=0.005)


def test_labelled_photos_do_not_tell_a_crop(labelled: Path) -> None:
    with pytest.raises(
        EvidenceError, match=r"^these labelled photos agree with --crop \S+ and --crop \S+ alike: accuracy 1\.00, "
    ):
        judged(labelled, labelled, colours, names=tuple(COLOURS), scale="0..1", channels="RGB")
