"""The program as a user runs it: what is published, what is refused, and what a kill leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

from savedmodel_bakery.exporter import publish
from savedmodel_bakery.exporter.cli import main

# The program imports TensorFlow afresh in two processes, so the bakes of this file start together and two run at a
# time; each test waits for its own.
WORKERS = 2
TIMEOUT_S = 120

TINY = r'''
import keras
import numpy as np


def build(activation="softmax", last=None):
    """Gives the mean of each channel, which are logits for softmax."""
    image = keras.Input((8, 8, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(image)
    dense = keras.layers.Dense(3, activation=activation)
    answer = dense(pooled)
    dense.set_weights([np.eye(3), np.zeros(3)])
    return keras.Model(image, last(answer) if last else answer)


def logits():
    return build(activation=None)


class Counting(keras.layers.Layer):
    """Counts its calls in Python, which a graph can't see: it keeps the number it was traced with."""

    calls = 0

    def call(self, tensor):
        self.calls += 1
        return tensor * self.calls


def counting():
    return build(activation=None, last=lambda answer: keras.layers.Softmax()(Counting()(answer)))


def not_a_number():
    return build(activation=None, last=lambda answer: keras.layers.Lambda(lambda x: x * float("nan"))(answer))


def fails():
    raise RuntimeError("no weights\nhere")


number = 7
'''
TRAIN = """
import keras
import numpy as np

keras.utils.set_random_seed(0)
model = keras.Sequential([
    keras.Input((8, 8, 3)),
    keras.layers.Flatten(),
    keras.layers.Dense(1024, activation="relu"),
    keras.layers.Dense(3, activation="softmax"),
])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(np.random.rand(32, 8, 8, 3), np.arange(32) % 3, epochs=2, verbose=0)
model.save("trained.keras")
plain = keras.models.clone_model(model)
plain.set_weights(model.get_weights())
plain.save("plain.h5")
"""
RECIPE = [
    *("--labels", "rgb.txt"),
    *("--crop", "none"),
    *("--resize", "bilinear", "--no-antialias"),
    *("--scale", "0..1"),
    *("--channels", "RGB"),
    *("--outputs", "probabilities"),
]


class Ran(NamedTuple):
    """What a run of the program left: its texts, exit code, and the files under its model root before and after."""

    code: int
    stdout: str
    stderr: str
    before: dict[str, bytes]
    after: dict[str, bytes]


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def exporter(workshop: Path, *arguments: str, root: str = "out") -> Ran:
    before = files(workshop / root)
    ran = subprocess.run(
        [sys.executable, "-m", "savedmodel_bakery.exporter", *arguments],
        cwd=workshop,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr, before, files(workshop / root))


def bake(workshop: Path, root: str, model: str | None, *arguments: str) -> Ran:
    named = ["--model", model] if model else []
    return exporter(workshop, "bake", *named, "--name", "tiny", "--out", root, *arguments, root=root)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a module of networks, label files, and models in files."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "tiny.py").write_text(TINY)
    (folder / "rgb.txt").write_text("red\ngreen\nblue\n")
    (folder / "two.txt").write_text("red\ngreen\n")
    (folder / "garbage.keras").write_bytes(b"PK\x03\x04 and then nothing of the kind")
    (folder / "typo.py").write_text("def build(:\n")
    (folder / "typo.toml").write_text("crops = 'none'\n")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", TRAIN], cwd=folder, check=True, capture_output=True, env=environment)
    return folder


# Name of the case: model, arguments, exit code, what stderr says at its end.
REFUSED: dict[str, tuple[str | None, list[str], int, list[str]]] = {
    "no model": (None, RECIPE, 1, ["no model was given; name one with --model, or in the recipe file"]),
    "no callable": ("tiny:number", RECIPE, 1, ["'tiny:number' is a int: must be callable"]),
    "no such module": (
        "none.such:build",
        RECIPE,
        1,
        [": ModuleNotFoundError: "],
    ),
    "module with a typo": ("typo:build", RECIPE, 1, ["cannot import 'typo:build': SyntaxError: "]),
    "recipe incomplete": (
        "tiny:build",
        ["--labels", "rgb.txt", "--crop", "none"],
        1,
        ["tiny:build needs --outputs, --resize, --antialias, --scale and --channels: they cannot be inferred from the"],
    ),
    "too few labels": (
        "tiny:build",
        ["--labels", "two.txt", *RECIPE[2:]],
        1,
        ["the network has 3 classes, but labels 'two.txt' hold 2", "background class at id 0"],
    ),
    "unknown model": (
        "resnet",
        RECIPE,
        1,
        ["unknown model 'resnet': allowed are efficientnet-lite0,", "the path of a .keras or .h5 file;"],
    ),
    "no such file": ("none.keras", RECIPE, 1, ["file not found: none.keras"]),
    "garbage in the file": (
        "garbage.keras",
        RECIPE,
        1,
        ["garbage.keras is not a valid .keras file"],
    ),
    "callable fails": ("tiny:fails", RECIPE, 1, ["tiny:fails failed with RuntimeError: no weights here"]),
    "another size": ("tiny:build", [*RECIPE, "--size", "9"], 1, ["invalid size 9x9: tiny:build requires 8x8"]),
    "logits taken for probabilities": (
        "tiny:logits",
        RECIPE,
        1,
        ["outputs is probabilities, but for a photo", "they look like logits; bake with --outputs logits"],
    ),
    "probabilities taken for logits": (
        "tiny:build",
        [*RECIPE, "--outputs", "logits"],
        1,
        ["outputs is logits, but for a photo", "look like probabilities; bake with --outputs probabilities"],
    ),
    "other answers than the network": (
        "tiny:counting",
        RECIPE,
        1,
        ["on chelsea.png the SavedModel's scores are [", "], the network's [", "; --optimise none bakes"],
    ),
    "no number": (
        "tiny:not_a_number",
        RECIPE,
        1,
        ["the network gives values that are not finite"],
    ),
    "recipe file with a typo": (
        "tiny:build",
        ["--recipe", "typo.toml"],
        1,
        ["recipe file typo.toml: unknown recipe field crops; a recipe has model, labels, outputs, top_k,"],
    ),
    "no recipe file": ("tiny:build", ["--recipe", "none.toml"], 2, ["'none.toml' does not exist"]),
    "size of letters": ("tiny:build", ["--size", "big"], 2, ["invalid size 'big': must be SIDE or HEIGHTxWIDTH"]),
    "scale unknown": (
        "tiny:build",
        ["--scale", "0..2"],
        2,
        ["invalid scale '0..2': must be one of 0..255, 0..1, -1..1,"],
    ),
    "crop above one": (
        "tiny:build",
        ["--crop", "9/8"],
        2,
        ["invalid crop '9/8': must be none, letterbox or a fraction"],
    ),
    "version below zero": ("tiny:build", ["--version", "-1"], 2, ["-1 is not in the range x>=0"]),
    "name of a path": (
        "tiny:build",
        ["--name", "a/b"],
        2,
        ["'a/b' is no model name; allowed is any text but . and .., without / \\ and :"],
    ),
}

Cases = dict[str, "Future[Ran]"]


@pytest.fixture(scope="module")
def cases(workshop: Path) -> Iterator[Cases]:
    """All runs of the program, under way."""
    with ThreadPoolExecutor(WORKERS) as pool:

        def after_first() -> Ran:
            first.result()
            return bake(workshop, "out", None, "--recipe", str(Path("out", "tiny", "1", publish.RECIPE_FILE)))

        def existing() -> Ran:
            again.result()
            return bake(workshop, "out", "tiny:build", "--version", "2", *RECIPE)

        first = pool.submit(bake, workshop, "out", "tiny:build", *RECIPE)
        trained = pool.submit(bake, workshop, "trained", "trained.keras", *RECIPE)
        again = pool.submit(after_first)
        zero = pool.submit(bake, workshop, "plain", "plain.h5", "--version", "0", *RECIPE)
        existing_version = pool.submit(existing)
        yield {
            "first": first,
            "trained": trained,
            "again": again,
            "zero": zero,
            "existing": existing_version,
        }
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def run_of(cases: Cases) -> Callable[[str], Ran]:
    """Wait for a run."""
    return lambda name: cases[name].result(TIMEOUT_S * 2)


@pytest.fixture(scope="module")
def version_1(workshop: Path, run_of: Callable[[str], Ran]) -> Path:
    """The folder of the first version; the second is there too."""
    run_of("again")
    return workshop / "out" / "tiny" / "1"


RunOf = Callable[[str], Ran]


def test_the_first_bake_publishes_version_1_and_prints_its_path_alone(run_of: RunOf) -> None:
    ran = run_of("first")
    assert (0, "out/tiny/1\n") == (ran.code, ran.stdout), ran.stderr
    assert "tiny/1/saved_model.pb" in ran.after
    assert {"1"} == {Path(name).parts[1] for name in ran.after}


def test_progress_and_agreement_go_to_stderr(run_of: RunOf) -> None:
    *doing, verdict = run_of("first").stderr.splitlines()
    assert [
        "loading tiny:build …",
        "building the servable …",
        "verifying it in a fresh process …",
    ] == doing
    assert verdict.startswith("verified on 3 photos: scores within ")


def test_the_recipe_that_was_baked_bakes_the_same_again_as_version_2(workshop: Path, run_of: RunOf) -> None:
    ran = run_of("again")
    assert (0, "out/tiny/2\n") == (ran.code, ran.stdout), ran.stderr
    assert ran.before.items() < ran.after.items()
    for name in (str(publish.RECIPE_FILE), "variables/variables.data-00000-of-00001"):
        assert ran.after[f"tiny/1/{name}"] == ran.after[f"tiny/2/{name}"]
    assert answers(workshop / "out" / "tiny" / "1") == answers(workshop / "out" / "tiny" / "2")


def test_the_whole_recipe_is_written_down(run_of: RunOf) -> None:
    written = run_of("first").after[f"tiny/1/{publish.RECIPE_FILE}"].decode()
    for line in ('model = "tiny:build"', 'labels = "rgb.txt"', 'scale = "0..1"', "antialias = false", "top_k = 5"):
        assert line in written.splitlines()


def test_version_0_is_published_where_it_is_asked_for(run_of: RunOf) -> None:
    ran = run_of("zero")
    assert (0, "plain/tiny/0\n") == (ran.code, ran.stdout), ran.stderr


def test_a_keras_file_is_baked(run_of: RunOf) -> None:
    ran = run_of("trained")
    assert (0, "trained/tiny/1\n") == (ran.code, ran.stdout), ran.stderr


def answers(version: Path) -> tuple[Any, Any]:
    """Labels and scores of three images of one colour each, from a Session."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        signature = tf.compat.v1.saved_model.load(session, ["serve"], str(version)).signature_def["pixels"]
        outputs = signature.outputs
        colours = np.repeat(np.eye(3, dtype=np.uint8) * 255, 64, axis=0).reshape(3, 8, 8, 3)
        labels, scores = session.run(
            [outputs["labels"].name, outputs["scores"].name], {signature.inputs["pixels"].name: colours}
        )
        return labels.tolist(), scores.tolist()


def test_both_files_of_the_same_weights_give_the_same_answers(workshop: Path, run_of: RunOf) -> None:
    run_of("trained"), run_of("zero")
    trained, plain = workshop / "trained" / "tiny" / "1", workshop / "plain" / "tiny" / "0"
    assert answers(plain) == answers(trained)


def test_the_baked_network_gives_the_label_of_each_colour(version_1: Path) -> None:
    labels, _ = answers(version_1)
    assert [b"red", b"green", b"blue"] == [row[0] for row in labels]


def test_training_leaves_nothing_in_the_servable(run_of: RunOf) -> None:
    """Adam keeps two numbers a weight, which would make it three times as large."""
    trained, plain = (sum(map(len, run_of(name).after.values())) for name in ("trained", "zero"))
    weights = 4 * (192 * 1024 + 1024 + 1024 * 3 + 3)
    assert plain >= weights
    assert trained <= plain * 1.05


def test_a_version_that_exists_is_refused_before_any_work(run_of: RunOf) -> None:
    ran = run_of("existing")
    assert 1 == ran.code
    assert "" == ran.stdout
    assert [
        "error: version 2 exists already in out/tiny, and a published version is never overwritten; "
        "the next free one is 3"
    ] == ran.stderr.splitlines()
    assert ran.before == ran.after
    assert {"1", "2"} == {Path(name).parts[1] for name in ran.after}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bake_is_refused_in_one_line_and_nothing_is_published(
    workshop: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, as each of its own would import TensorFlow for most of its time."""
    model, arguments, code, says = REFUSED[name]
    named = ["--model", model] if model else []
    monkeypatch.chdir(workshop)
    monkeypatch.setattr(sys, "path", sys.path[:])
    try:
        ran = CliRunner().invoke(main, ["bake", *named, "--name", "tiny", "--out", str(tmp_path), *arguments])
    finally:
        sys.modules.pop("tiny", None)
    assert (code, "") == (ran.exit_code, ran.stdout), ran.stderr
    *before, last = ran.stderr.splitlines()
    assert last.startswith("error: " if code == 1 else "Error: ")
    for part in says:
        assert part in last
    assert all(line.endswith(" …") or line.startswith(("Usage: ", "Try ")) or not line for line in before), ran.stderr
    assert [] == list((tmp_path / "tiny").glob("*"))


# A file that shows how far it got, and for how long it then goes on; verifying takes more than two seconds.
KILLED = {
    "when it begins to stage": (".staging-*", (0.0, 0.1)),
    "while it writes": (".staging-*/version/saved_model.pb", (0.0, 0.1)),
    "while it verifies": (f".staging-*/version/{publish.RECIPE_FILE}", (0.2, 0.8)),
}


@pytest.mark.parametrize(("sign", "longer_s"), KILLED.values(), ids=KILLED)
def test_a_kill_leaves_nothing_that_a_server_would_load(
    workshop: Path, tmp_path: Path, sign: str, longer_s: tuple[float, float]
) -> None:
    base, lines = tmp_path / "tiny", tmp_path / "stderr"
    command = [
        sys.executable,
        "-m",
        "savedmodel_bakery.exporter",
        "bake",
        "--model",
        "tiny:build",
        "--name",
        "tiny",
        "--out",
        tmp_path,
    ]
    with lines.open("w") as stderr:
        baking = subprocess.Popen([*command, *RECIPE], cwd=workshop, stderr=stderr, start_new_session=True)
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not any(base.glob(sign)):
            assert baking.poll() is None, lines.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(random.uniform(*longer_s))
        baking.kill()
        assert -signal.SIGKILL == baking.wait(10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(baking.pid, signal.SIGKILL)  # what it had started
        baking.wait(10)
    assert [] == [path.name for path in base.iterdir() if path.name.isdecimal()]
    assert [".staging-"] == [path.name[:9] for path in base.iterdir()]
    assert 1 == publish.next_version(base)


SIGNATURES = ["classify", "pixels", "preprocess", "preview", "serving_default", "top_k"]


def test_inspect_shows_signatures_recipe_and_size(workshop: Path, version_1: Path) -> None:
    ran = exporter(workshop, "inspect", str(version_1))
    assert (0, "") == (ran.code, ran.stderr)
    lines = ran.stdout.splitlines()
    assert lines[0].startswith(f"{version_1}: ")
    assert [
        f"{name} (tensorflow/serving/{'classify' if name == 'classify' else 'predict'})" for name in SIGNATURES
    ] == [line for line in lines if line.endswith(")")]
    for line in ("  → image: string [?]", "  ← output_0: string [?]", "  ← scores: float [?, 3]", "recipe"):
        assert line in lines
    assert '  model = "tiny:build"' in lines


def test_inspect_gives_the_same_to_machines(workshop: Path, version_1: Path) -> None:
    ran = exporter(workshop, "inspect", "--json", str(version_1))
    found = json.loads(ran.stdout)
    assert SIGNATURES == [signature["name"] for signature in found["signatures"]]
    assert {
        "name": "pixels",
        "method": "tensorflow/serving/predict",
        "inputs": [{"alias": "pixels", "dtype": "uint8", "shape": [-1, 8, 8, 3]}],
        "outputs": [
            {"alias": "class_ids", "dtype": "int32", "shape": [-1, 3]},
            {"alias": "error", "dtype": "string", "shape": [-1]},
            {"alias": "labels", "dtype": "string", "shape": [-1, 3]},
            {"alias": "ok", "dtype": "bool", "shape": [-1]},
            {"alias": "scores", "dtype": "float", "shape": [-1, 3]},
        ],
    } == found["signatures"][1]
    assert sum(map(len, files(version_1).values())) == found["size_bytes"]
    assert sum(map(len, files(version_1 / "variables").values())) == found["weights_bytes"]
    assert (version_1 / publish.RECIPE_FILE).read_text() == found["recipe"]
    assert str(version_1) == found["path"]


def test_versions_are_listed(workshop: Path, version_1: Path) -> None:
    ran = exporter(workshop, "versions", str(version_1.parent))
    assert (0, "") == (ran.code, ran.stderr)
    assert [["1", str(version_1)], ["2", str(version_1.with_name("2"))]] == [
        [line.split("\t")[0], line.split("\t")[-1]] for line in ran.stdout.splitlines()
    ]


def test_versions_are_listed_to_machines(workshop: Path, version_1: Path) -> None:
    rows = json.loads(exporter(workshop, "versions", "--json", str(version_1.parent)).stdout)
    assert [1, 2] == [row["version"] for row in rows]
    assert str(version_1) == rows[0]["path"]
    assert sum(map(len, files(version_1).values())) == rows[0]["size_bytes"]


NOTHING_THERE = {
    "inspect no folder": (["inspect", "none"], "none holds no SavedModel (saved_model.pb: No such file or directory)"),
    "inspect a base path": (["inspect", "out/tiny"], "out/tiny holds no SavedModel"),
    "inspect a damaged one": (
        ["inspect", "damaged"],
        "damaged/saved_model.pb is damaged, or has no graph tagged serve",
    ),
    "versions of nothing": (["versions", "none"], "no version is published under none; versions are folders named 1"),
}


@pytest.mark.parametrize(("arguments", "says"), NOTHING_THERE.values(), ids=NOTHING_THERE)
@pytest.mark.usefixtures("version_1")
def test_a_path_that_holds_nothing_is_refused_in_one_line(workshop: Path, arguments: list[str], says: str) -> None:
    (workshop / "damaged").mkdir(exist_ok=True)
    (workshop / "damaged" / "saved_model.pb").write_bytes(b"\xff\xff")
    ran = exporter(workshop, *arguments)
    assert (1, "") == (ran.code, ran.stdout)
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"error: {says}")


LOADED = """
import sys
from exporter.cli import main
main(sys.argv[1:], standalone_mode=False)
print(sorted({"tensorflow", "keras", "numpy"} & set(sys.modules)), file=sys.stderr)
"""
QUICK = {
    "help": ["--help"],
    "help of bake": ["bake", "--help"],
    "inspect": ["inspect", "out/tiny/1"],
    "versions": ["versions", "out/tiny"],
}


@pytest.mark.parametrize("arguments", QUICK.values(), ids=QUICK)
@pytest.mark.usefixtures("version_1")
def test_what_bakes_nothing_imports_no_tensorflow(workshop: Path, arguments: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LOADED), *arguments],
        cwd=workshop,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout
    assert not {"tensorflow", "keras"} & set(json.loads(ran.stderr.replace("'", '"')))


def test_sigterm_removes_what_was_staged(workshop: Path) -> None:
    """A scheduler's way to stop a job: exit 143, and not even a staging folder stays."""
    base_path = workshop / "stopped" / "tiny"
    command = [
        sys.executable,
        "-m",
        "savedmodel_bakery.exporter",
        "bake",
        "--model",
        "tiny:build",
        "--name",
        "tiny",
        "--out",
        "stopped",
    ]
    process = subprocess.Popen([*command, *RECIPE], cwd=workshop, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while not list(base_path.glob(".staging-*")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert 143 == process.returncode
    assert [] == list(base_path.iterdir())


def test_a_forgotten_name_does_not_take_over_another_model(workshop: Path) -> None:
    """Without --name the default is meant, and that may serve something else already."""
    name = "efficientnet_lite0"
    command = [sys.executable, "-m", "savedmodel_bakery.exporter", "bake", "--out", "default", *RECIPE, "--model"]
    first = subprocess.run([*command, "tiny:build"], cwd=workshop, capture_output=True, text=True, check=True)
    assert f"default/{name}/1\n" == first.stdout
    second = subprocess.run([*command, "tiny:logits"], cwd=workshop, capture_output=True, text=True, check=False)
    assert (1, "") == (second.returncode, second.stdout)
    assert f"error: default/{name} serves tiny:build; give tiny:logits a name of its own with --name\n" == second.stderr
    assert ["1"] == [path.name for path in (workshop / "default" / name).iterdir()]
