"""`bakery triton` writes model repositories; a system test runs them on a real tritonserver."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import signature_files
from command_line import Ended
from google.protobuf import text_format
from google.protobuf.json_format import MessageToDict

from savedmodel_bakery.errors import BakeError, PublishError, TritonError
from savedmodel_bakery.exporter.commands.triton import triton
from savedmodel_bakery.exporter.triton.config import Options
from savedmodel_bakery.exporter.triton.export import export_pipeline, export_servable
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.examples import encode_example
from savedmodel_bakery.wire.tensors import encode_tensor
from savedmodel_bakery.wire.v2.schema import ModelConfig

Arrays = dict[str, np.ndarray]


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """Version 3 of a model that was baked for images."""
    folder = tmp_path / "saved_model" / "flowers" / "3"
    signature_files.write(folder, ["image: string [?]"], ["output_0: string [?]"])
    signature_files.write(folder, ["image: string [?]"], ["ok: bool [?]", "scores: float [?, 5]"], "top_k")
    (folder / "variables").mkdir()
    (folder / "variables" / "variables.index").write_bytes(b"weights")
    (folder / "assets.extra" / "goldens").mkdir(parents=True)
    (folder / "assets.extra" / "recipe.toml").write_text("")
    return folder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Where the model repository will be."""
    return tmp_path / "models"


def write_goldens(version: Path, signature: str, calls: Sequence[Arrays]) -> None:
    lines = []
    for call in calls:
        request = schema.PredictRequest()
        for alias, array in call.items():
            request.inputs[alias].CopyFrom(encode_tensor(array))
        lines.append(json.dumps({"request": MessageToDict(request, preserving_proto_field_name=True)}))
    (version / "assets.extra" / "goldens").mkdir(parents=True, exist_ok=True)
    (version / "assets.extra" / "goldens" / f"{signature}.jsonl").write_text("\n".join(lines) + "\n")


def config_of(models: Path, name: str) -> dict[str, Any]:
    """Return the content of a config.pbtxt."""
    message = text_format.Parse((models / name / "config.pbtxt").read_text(), ModelConfig())
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=False)


def tensors(entries: list[dict[str, Any]]) -> dict[str, tuple[str, list[int], bool]]:
    """Return type, dims, and whether there is an empty reshape, by name."""
    return {
        entry["name"]: (entry["data_type"], [int(dim) for dim in entry["dims"]], entry.get("reshape") == {})
        for entry in entries
    }


def texts(*values: bytes) -> np.ndarray:
    return np.array(values, np.object_)


def test_a_model_for_images_is_batched_and_runs_top_k(version: Path, models: Path) -> None:
    assert [models / "flowers" / "3"] == export_servable(version.parent, models, options=Options())
    config = config_of(models, "flowers")
    assert ("flowers", "python", 32) == (config["name"], config["backend"], config["max_batch_size"])
    assert {"image": ("TYPE_STRING", [1], True)} == tensors(config["input"])
    assert {"ok": ("TYPE_BOOL", [1], True), "scores": ("TYPE_FP32", [5], False)} == tensors(config["output"])
    assert {"latest": {"num_versions": 1}} == config["version_policy"]
    assert [{"kind": "KIND_CPU", "count": 1}] == config["instance_group"]
    assert {} == config["dynamic_batching"]
    assert {"signature_name": {"string_value": "top_k"}} == config["parameters"]
    copied = models / "flowers" / "3" / "saved_model"
    assert b"weights" == (copied / "variables" / "variables.index").read_bytes()
    assert (version / "saved_model.pb").read_bytes() == (copied / "saved_model.pb").read_bytes()
    assert "class TritonPythonModel" in (models / "flowers" / "3" / "model.py").read_text()


@pytest.mark.parametrize(
    ("inputs", "outputs", "max_batch_size", "dims"),
    [
        (["x: float [?]"], ["y: float [?, 2]"], None, {"x": [-1], "y": [-1, 2]}),
        (["x: int64 [2, ?]"], ["y: double []"], None, {"x": [2, -1], "y": [1]}),
        (["x: half [?, ?, 3]"], ["y: uint16 [?]"], 16, {"x": [-1, 3], "y": [1]}),
    ],
    ids=["with all dimensions", "scalar", "batched"],
)
def test_other_models_are_batched_on_request_only(
    tmp_path: Path, models: Path, inputs: list[str], outputs: list[str], max_batch_size: int | None, dims: Any
) -> None:
    version = signature_files.write(tmp_path / "sum" / "1", inputs, outputs)
    export_servable(version, models, options=Options(max_batch_size=max_batch_size))
    config = config_of(models, "sum")
    assert max_batch_size == config.get("max_batch_size")
    assert (max_batch_size is not None) == ("dynamic_batching" in config)
    assert dims == {name: sizes for name, (_, sizes, _) in tensors([*config["input"], *config["output"]]).items()}


def test_execution_is_as_chosen(version: Path, models: Path) -> None:
    options = Options(max_batch_size=4, instances=3, gpu=True, max_queue_delay_us=2000)
    export_servable(version, models, name="fast", signature_name="serving_default", options=options)
    config = config_of(models, "fast")
    assert 4 == config["max_batch_size"]
    assert [{"kind": "KIND_GPU", "count": 3}] == config["instance_group"]
    assert {"max_queue_delay_microseconds": "2000"} == config["dynamic_batching"]
    assert "serving_default" == config["parameters"]["signature_name"]["string_value"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "max_batch_size", "error"),
    [
        (
            ["x: float [?]"],
            ["y: complex64 [?]"],
            None,
            'output "y" .* its type is complex64; must be one of bool, uint8',
        ),
        (["x: bfloat16 [?]"], ["y: float [?]"], None, 'input "x" .* its type is bfloat16'),
        (["x: float unknown"], ["y: float [?]"], None, 'input "x" .* number of dimensions is unknown'),
        (["x: float [?]"], ["y: float [?, 0]"], None, r'output "y" .* shape \[-1, 0\] has a size of 0'),
        (["x: float [?]"], ["y: float []"], 8, r'size 8: the output "y" .* the shape \[\], whose first .* must be 0'),
        (["x: float [4, 2]"], ["y: float [?]"], 8, r'the input "x" .* the shape \[4, 2\]'),
        ([], ["y: float [?]"], None, "it has no inputs"),
    ],
    ids=["no such type", "no array", "unknown rank", "empty", "scalar in a batch", "fixed batch", "no inputs"],
)
def test_a_signature_that_triton_cannot_run_is_an_error(
    tmp_path: Path, models: Path, inputs: list[str], outputs: list[str], max_batch_size: int | None, error: str
) -> None:
    version = signature_files.write(tmp_path / "sum" / "1", inputs, outputs)
    with pytest.raises(TritonError, match=error):
        export_servable(version, models, options=Options(max_batch_size=max_batch_size))
    assert not models.exists()


def test_a_missing_signature_is_an_error(version: Path, models: Path) -> None:
    with pytest.raises(TritonError, match=r'no signature top; .* --signature-name: "serving_default", "top_k"'):
        export_servable(version, models, signature_name="top", options=Options())
    other = signature_files.write(version.parent / "4", ["x: float [?]"], ["y: float [?]"], "other")
    with pytest.raises(TritonError, match=r'no signature top_k or serving_default; .* --signature-name: "other"'):
        export_servable(other, models, options=Options())


def test_rows_of_goldens_are_warm_up_requests(version: Path, models: Path) -> None:
    write_goldens(version, "top_k", [{"image": texts(b"cat", b"<html>")}, {"image": texts(b"cat")}])
    export_servable(version, models, options=Options())
    warmup = config_of(models, "flowers")["model_warmup"]
    files = [sample["inputs"]["image"].pop("input_data_file") for sample in warmup]
    assert [
        {"name": f"golden {number}", "batch_size": 1, "inputs": {"image": {"data_type": "TYPE_STRING", "dims": ["1"]}}}
        for number in (1, 2)
    ] == warmup
    contents = [(models / "flowers" / "warmup" / file).read_bytes() for file in files]
    assert [struct.pack("<I", len(image)) + image for image in (b"cat", b"<html>")] == contents


def test_without_batching_goldens_are_warm_up_requests(tmp_path: Path, models: Path) -> None:
    version = signature_files.write(tmp_path / "sum" / "1", ["a: int32 [?, 2]", "b: float []"], ["y: float [?]"])
    write_goldens(version, "serving_default", [{"a": np.array([[1, 2]], np.int32), "b": np.float32(0.5)}])
    export_servable(version, models, options=Options())
    (sample,) = config_of(models, "sum")["model_warmup"]
    assert {"a": ["1", "2"], "b": ["1"]} == {name: data["dims"] for name, data in sample["inputs"].items()}
    files = {name: data["input_data_file"] for name, data in sample["inputs"].items()}
    assert struct.pack("<2i", 1, 2) == (models / "sum" / "warmup" / files["a"]).read_bytes()
    assert struct.pack("<f", 0.5) == (models / "sum" / "warmup" / files["b"]).read_bytes()


@pytest.mark.parametrize("b", [np.zeros((3, 4)), np.float64(0)], ids=["other number of rows", "scalar"])
def test_goldens_without_rows_cannot_be_batched(tmp_path: Path, models: Path, b: np.ndarray) -> None:
    version = signature_files.write(
        tmp_path / "product" / "1", ["a: double [?, 4]", "b: double [?, 4]"], ["y: double [?]"]
    )
    write_goldens(version, "serving_default", [{"a": np.zeros((2, 4)), "b": b}])
    message = "invalid maximum batch size 8: the goldens' inputs have different numbers of rows; must be 0"
    with pytest.raises(TritonError, match=message):
        export_servable(version, models, options=Options(max_batch_size=8))
    assert not models.exists()
    export_servable(version, models, options=Options())


def test_examples_of_classify_are_warm_up_requests(version: Path, models: Path) -> None:
    signature_files.write(version, ["inputs: string [?]"], ["classes: string [?, 5]"], "classify")
    example = encode_example({"image/encoded": b"cat"})
    request = schema.ClassificationRequest()
    request.input.example_list.examples.append(example)
    golden = {"request": MessageToDict(request, preserving_proto_field_name=True)}
    (version / "assets.extra" / "goldens" / "classify.jsonl").write_text(json.dumps(golden))
    export_servable(version, models, signature_name="classify", options=Options())
    (file,) = (models / "flowers" / "warmup").iterdir()
    assert example.SerializeToString() == file.read_bytes()[4:]


@pytest.mark.parametrize("content", ["{", "{}", '{"request": {"inputs": {"image": {"dtype": "DT_CAT"}}}}'])
def test_damaged_goldens_are_an_error(version: Path, models: Path, content: str) -> None:
    (version / "assets.extra" / "goldens" / "top_k.jsonl").write_text(content)
    with pytest.raises(TritonError, match=r"the goldens in .* are damaged"):
        export_servable(version, models, options=Options())
    assert not models.exists()


def test_a_version_is_never_overwritten_but_its_configuration_is(version: Path, models: Path) -> None:
    export_servable(version, models, options=Options())
    (version.parent / "2").mkdir()
    (version / "saved_model.pb").rename(version.parent / "2" / "saved_model.pb")
    with pytest.raises(PublishError, match=r"has version 3, which Triton would serve instead of version 2"):
        export_servable(version.parent / "2", models, options=Options())
    (version.parent / "2" / "saved_model.pb").rename(version / "saved_model.pb")
    (version / "variables" / "variables.index").write_bytes(b"others!")
    with pytest.raises(PublishError, match=r"version 3 exists in .* with other files; remove it"):
        export_servable(version, models, options=Options())
    (version / "variables" / "variables.index").write_bytes(b"weights")
    export_servable(version, models, options=Options(max_batch_size=2))
    assert 2 == config_of(models, "flowers")["max_batch_size"]
    assert b"weights" == (models / "flowers/3/saved_model/variables/variables.index").read_bytes()


def test_only_staging_folders_of_this_command_are_removed(version: Path, models: Path) -> None:
    (models.parent / ".staging-site").mkdir()
    (models.parent / ".bakery-triton-staging-dead").mkdir()
    before = set(models.parent.iterdir())
    export_servable(version, models, options=Options())
    assert before - {models.parent / ".bakery-triton-staging-dead"} | {models} == set(models.parent.iterdir())


def test_a_new_version_joins_the_others(version: Path, models: Path) -> None:
    write_goldens(version, "top_k", [{"image": texts(b"cat")}])
    export_servable(version, models, options=Options())
    version.rename(version.with_name("4"))
    write_goldens(version.with_name("4"), "top_k", [{"image": texts(b"dog")}])
    assert [models / "flowers" / "4"] == export_servable(version.parent, models, options=Options(max_batch_size=2))
    assert ["3", "4", "config.pbtxt", "warmup"] == sorted(path.name for path in (models / "flowers").iterdir())
    (sample,) = config_of(models, "flowers")["model_warmup"]
    data = models / "flowers" / "warmup" / sample["inputs"]["image"]["input_data_file"]
    assert b"dog" == data.read_bytes()[4:]


def test_a_folder_without_a_number_is_version_1(version: Path, models: Path) -> None:
    folder = version.rename(version.with_name("exported"))
    assert [models / "exported" / "1"] == export_servable(folder, models, options=Options())


def test_version_0_is_an_error(version: Path, models: Path) -> None:
    with pytest.raises(TritonError, match=r"Triton, which ignores version 0"):
        export_servable(version.rename(version.with_name("0")), models, options=Options())


PIPELINE = """
name = "sums"
inputs = ["a", "b"]
outputs = ["product"]

[[steps]]
name = "mul"
model = "saved_model/mul"
input_map = { x = "sum", y = "difference" }
output_map = { product = "product" }

[[steps]]
name = "add_sub"
model = "saved_model/add_sub/2"
input_map = { a = "a", b = "b" }
output_map = { sum = "sum", difference = "difference" }
drop = ["angle"]
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A pipeline file with its models; the second has an output of a type that Triton lacks."""
    outputs = ["sum: float [?, 4]", "difference: float [?, 4]", "angle: complex64 [?, 4]"]
    signature_files.write(tmp_path / "saved_model/add_sub/2", ["a: float [?, ?]", "b: float [?, 4]"], outputs)
    signature_files.write(
        tmp_path / "saved_model/mul/1", ["x: float [?, 4]", "y: float [?, 4]"], ["product: float [?, 4]"]
    )
    file = tmp_path / "file.toml"
    file.write_text(PIPELINE)
    return file


def test_a_pipeline_is_an_ensemble_of_its_steps(pipeline: Path, models: Path) -> None:
    paths = [models / "sums.add_sub" / "2", models / "sums.mul" / "1", models / "sums" / "1"]
    assert paths == export_pipeline(pipeline, models, options=Options())
    config = config_of(models, "sums")
    assert ("ensemble", "sums", None) == (config["platform"], config["name"], config.get("max_batch_size"))
    assert {"a": ("TYPE_FP32", [-1, -1], False), "b": ("TYPE_FP32", [-1, 4], False)} == tensors(config["input"])
    assert {"product": ("TYPE_FP32", [-1, 4], False)} == tensors(config["output"])
    assert [
        {
            "model_name": "sums.add_sub",
            "model_version": "-1",
            "input_map": {"a": "a", "b": "b"},
            "output_map": {"sum": "sum", "difference": "difference"},
        },
        {
            "model_name": "sums.mul",
            "model_version": "-1",
            "input_map": {"x": "sum", "y": "difference"},
            "output_map": {"product": "product"},
        },
    ] == config["ensemble_scheduling"]["step"]
    assert {"sum", "difference"} == set(tensors(config_of(models, "sums.add_sub")["output"]))
    assert [] == list(paths[-1].iterdir())


def test_the_steps_of_a_batched_pipeline_are_batched(pipeline: Path, models: Path) -> None:
    export_pipeline(pipeline, models, name="others", options=Options(max_batch_size=8))
    for name in ("others", "others.mul", "others.add_sub"):
        assert 8 == config_of(models, name)["max_batch_size"]
    assert {"a": [-1], "b": [4]} == {
        name: dims for name, (_, dims, _) in tensors(config_of(models, "others")["input"]).items()
    }


def test_a_pipeline_of_models_for_images_is_batched(version: Path, models: Path, tmp_path: Path) -> None:
    file = tmp_path / "label.toml"
    file.write_text(f"""
inputs = ["photo"]
outputs = ["label"]
[[steps]]
name = "classify"
model = "{version.parent}"
input_map = {{ image = "photo" }}
output_map = {{ output_0 = "label" }}
""")
    export_pipeline(file, models, options=Options())
    config = config_of(models, "label")
    assert 32 == config["max_batch_size"]
    assert {"photo": ("TYPE_STRING", [1], False)} == tensors(config["input"])
    assert {"image": ("TYPE_STRING", [1], True)} == tensors(config_of(models, "label.classify")["input"])


def test_an_error_in_a_pipeline_names_the_step(pipeline: Path, models: Path) -> None:
    used = PIPELINE.replace('drop = ["angle"]\n', "").replace('{ sum = "sum"', '{ angle = "angle", sum = "sum"')
    pipeline.write_text(used.replace('["product"]', '["product", "angle"]'))
    with pytest.raises(BakeError, match=r'step "add_sub": the output "angle" .* complex64'):
        export_pipeline(pipeline, models, options=Options())
    pipeline.write_text(PIPELINE.replace('"mul"\nmodel', '"a/b"\nmodel'))
    with pytest.raises(BakeError, match=r"step 1: invalid step name 'a/b': must be text without"):
        export_pipeline(pipeline, models, options=Options())
    assert not models.exists()


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `bakery triton`."""
    return lambda *arguments: command_line.run(triton, arguments, capsys)


def test_the_command_prints_where_the_versions_are(run: Run, pipeline: Path, version: Path, models: Path) -> None:
    done = run(version, "--out", models, "--name", "a", "--instances", "2", "--gpu", "--max-queue-delay-us", "5")
    assert (0, f"{models}/a/3\n") == (done.code, done.stdout)
    assert [{"kind": "KIND_GPU", "count": 2}] == config_of(models, "a")["instance_group"]
    done = run(pipeline, "--out", models, "--max-batch-size", "8")
    assert [f"{models}/sums.add_sub/2", f"{models}/sums.mul/1", f"{models}/sums/1"] == done.stdout.splitlines()


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["file.toml", "--signature-name", "top_k"], 2, "--signature-name is for a SERVABLE"),
        (["saved_model/flowers", "--name", "a/b"], 2, "invalid model name 'a/b'"),
        (["file.toml", "--max-queue-delay-us", "9"], 1, "error: invalid maximum queue delay 9: must be 0 if"),
        (["saved_model/flowers", "--out", "saved_model/flowers/3/in"], 1, "/flowers/3 has a SavedModel, and published"),
        (["saved_model"], 1, "error: no SavedModel in saved_model: must be the folder of a version"),
        (["saved_model/flowers/3/variables/variables.index"], 1, "error: cannot read the pipeline file"),
        (["saved_model/flowers", "--out", "file.toml/models"], 1, "/file.toml: File exists"),
    ],
    ids=["signature of a pipeline", "name", "delay", "in itself", "no model", "no pipeline", "no folder"],
)
def test_the_command_explains_what_is_wrong(
    run: Run, pipeline: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, error: str
) -> None:
    monkeypatch.chdir(pipeline.parent)
    done = run(*arguments)
    assert code == done.code
    assert error in done.stderr
    assert "Traceback" not in done.stderr
