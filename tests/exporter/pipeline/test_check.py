"""Pipelines are checked against the signatures of their steps, before anything is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import signature_files

from savedmodel_bakery.errors import PipelineError
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline, check_pipeline
from savedmodel_bakery.exporter.pipeline.pipeline_file import parse_pipeline
from savedmodel_bakery.wire import schema


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that consist of signatures."""
    root = tmp_path_factory.mktemp("models")
    pair, floats = ["a: float [4]", "b: float [4]"], ["sum: float [4]", "difference: float [4]"]
    signature_files.write(root / "add_sub/1", pair, ["old: float [4]"])
    signature_files.write(root / "add_sub/2", pair, floats)
    signature_files.write(root / "mul/1", ["x: float [?]", "y: float [?]"], ["product: float [?]"])
    signature_files.write(root / "mul/1", ["x: int32 []"], ["y: int32 []"], signature="whole")
    signature_files.write(root / "three/1", ["x: float [3]"], ["y: float [3]"])
    signature_files.write(root / "any/1", ["x: float unknown"], ["y: float unknown"])
    (root / "damaged").mkdir()
    (root / "damaged/saved_model.pb").write_bytes(b"\xff")
    return root


def add_sub(**changes: Any) -> dict[str, Any]:
    """The step that makes "sum" and "difference" of "a" and "b"."""
    maps = {"input_map": {"a": "a", "b": "b"}, "output_map": {"sum": "sum", "difference": "difference"}}
    return {"name": "add_sub", "model": "add_sub", **maps, **changes}


def mul(**changes: Any) -> dict[str, Any]:
    """The step that makes "product" of "sum" and "difference"."""
    maps = {"input_map": {"x": "sum", "y": "difference"}, "output_map": {"product": "product"}}
    return {"name": "mul", "model": "mul", **maps, **changes}


def one(name: str, model: str, taken: str, made: str, **changes: Any) -> dict[str, Any]:
    """A step of a model with one input and one output."""
    return {"name": name, "model": model, "input_map": {"x": taken}, "output_map": {"y": made}, **changes}


def check(models: Path, *steps: dict[str, Any], **changes: Any) -> CheckedPipeline:
    content = {"inputs": ["a", "b"], "outputs": ["product"], "steps": list(steps), **changes}
    return check_pipeline(parse_pipeline(content, folder=models, default_name="pipeline"))


def test_steps_are_sorted_by_what_they_take(models: Path) -> None:
    twice = one("twice", "any", "product", "twice")
    checked = check(models, twice, mul(), one("other", "any", "a", "other"), add_sub(), outputs=["twice", "other"])
    assert ["other", "add_sub", "mul", "twice"] == [step.name for step in checked.steps]
    assert ["2", "1"] == [step.version.name for step in (checked.steps[1], checked.steps[2])]


def test_a_model_may_be_the_folder_of_a_version(models: Path) -> None:
    checked = check(models, add_sub(model="add_sub/2"), mul())
    assert models / "add_sub/2" == checked.steps[0].version.resolve()


def test_unknown_dimensions_become_known_by_the_tensors_maker_and_users(models: Path) -> None:
    steps = [one("first", "any", "a", "p"), one("second", "mul", "p", "q"), one("third", "three", "q", "r")]
    steps[1] |= {"input_map": {"x": "p", "y": "p"}, "output_map": {"product": "q"}}
    checked = check(models, *steps, inputs=["a"], outputs=["r"])
    assert {
        "a": "float [unknown]", "p": "float [?]", "q": "float [3]", "r": "float [3]",
    } == {name: tensor.form for name, tensor in checked.tensors.items()}  # fmt: skip


ERRORS = {
    "unknown model": (
        [add_sub(model="none"), mul()],
        'step "add_sub": no SavedModel in …/none: must be the folder of a version, such as MODEL/1, or a folder '
        "with versions",
    ),
    "unknown signature": (
        [add_sub(), mul(signature="multiply")],
        'step "mul": …/mul/1 has no signature "multiply"; it has "serving_default", "whole"',
    ),
    "unknown input of a signature": (
        [add_sub(), mul(input_map={"x": "sum", "z": "difference"})],
        'step "mul": input_map has "z", but signature "serving_default" of …/mul/1 has no such input; it has '
        "x: float [?], y: float [?]",
    ),
    "unknown output of a signature": (
        [add_sub(output_map={"summ": "sum"}), mul()],
        'step "add_sub": output_map has "summ", but signature "serving_default" of …/add_sub/2 has no such output; it '
        "has difference: float [4], sum: float [4]",
    ),
    "unknown dropped output": (
        [add_sub(drop=["rest"]), mul()],
        'step "add_sub": drop has "rest", but signature "serving_default" of …/add_sub/2 has no such output; it has '
        "difference: float [4], sum: float [4]",
    ),
    "mapped and dropped": (
        [add_sub(drop=["sum"]), mul()],
        'step "add_sub": output "sum" is both in output_map, as "sum", and in drop; remove it from one of them',
    ),
    "input without a tensor": (
        [add_sub(), mul(input_map={"x": "sum"})],
        'step "mul": input "y" (float [?]) is not in input_map; "a", "b", "difference", "sum" would fit',
    ),
    "unknown tensor": (
        [add_sub(), mul(input_map={"x": "sum", "y": "diff"})],
        'step "mul": input "y" (float [?]) takes "diff", which is neither an input of the pipeline nor made by a step; '
        '"a", "b", "difference", "sum" would fit',
    ),
    "unknown tensor, and none fits": (
        [add_sub(), mul(), {**one("whole", "mul", "n", "m"), "signature": "whole"}],
        'step "whole": input "x" (int32 []) takes "n", which is neither an input of the pipeline nor made by a step; '
        "no tensor of the pipeline fits",
    ),
    "other shape": (
        [add_sub(), mul(), one("three", "three", "sum", "t")],
        'step "three": input "x" is float [3], but "sum", output "sum" of step "add_sub" that step "mul" also takes, '
        'is float [4]; "product" would fit',
    ),
    "other dtype": (
        [add_sub(), mul(), {**one("whole", "mul", "product", "m"), "signature": "whole"}],
        'step "whole": input "x" is int32 [], but "product", output "product" of step "mul", is float [?]; no tensor '
        "of the pipeline fits",
    ),
    "two steps need an input in different shapes": (
        [add_sub(), mul(), one("three", "three", "a", "t")],
        'step "three": input "x" is float [3], but "a", an input of the pipeline that step "add_sub" also takes, is '
        'float [4]; "product" would fit',
    ),
    "unused output": (
        [add_sub(output_map={"sum": "sum"}), mul(input_map={"x": "sum", "y": "sum"})],
        'step "add_sub": output "difference" (float [4]) is neither in output_map nor in drop; it would fit input "a" '
        'of step "add_sub", input "b" of step "add_sub", input "x" of step "mul", input "y" of step "mul"',
    ),
    "unused tensor": (
        [add_sub(), mul(input_map={"x": "sum", "y": "sum"})],
        'step "add_sub": output "difference" (float [4]) is "difference", which is not used by a step and is not an '
        'output of the pipeline; add it to drop; it would fit input "a" of step "add_sub", input "b" of step '
        '"add_sub", input "x" of step "mul", input "y" of step "mul"',
    ),
    "unused input": (
        [add_sub(input_map={"a": "a", "b": "a"}), mul()],
        'input "b" of the pipeline is taken by no step; steps take "a", "difference", "sum"',
    ),
    "cycle": (
        [add_sub(input_map={"a": "a", "b": "p"}), mul(), one("any", "any", "product", "p")],
        'the steps form a cycle, in which each takes a tensor of the next: "add_sub", "any", "mul", "add_sub"',
    ),
    "step that takes its own output": (
        [add_sub(), mul(), one("any", "any", "p", "p")],
        'the steps form a cycle, in which each takes a tensor of the next: "any", "any"',
    ),
}


@pytest.mark.parametrize(("steps", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_steps_that_do_not_fit_are_rejected_with_what_would_fit(
    models: Path, monkeypatch: pytest.MonkeyPatch, steps: list[dict[str, Any]], message: str
) -> None:
    monkeypatch.chdir(models)
    inputs = ["a"] if '"mul", "add_sub"' in message else ["a", "b"]
    with pytest.raises(PipelineError) as raised:
        check(Path(), *steps, inputs=inputs)
    assert message.replace("…/", "") == str(raised.value)


def test_an_output_of_the_pipeline_must_be_made_by_a_step(models: Path) -> None:
    with pytest.raises(PipelineError) as raised:
        check(models, add_sub(), mul(), outputs=["product", "a"])
    assert 'output "a" of the pipeline is made by no step; steps make "difference", "sum", "product"' == str(
        raised.value
    )


def test_tensors_of_other_kinds_can_be_dropped_but_not_connected(models: Path, tmp_path: Path) -> None:
    version = signature_files.write(tmp_path / "sparse/1", ["x: float [?]"], ["product: float [?]", "y: float [?]"])
    saved = schema.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    saved.meta_graphs[0].signature_def["serving_default"].outputs["y"].coo_sparse.values_tensor_name = "values:0"
    (version / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(PipelineError, match=r'step "s": output "y" is sparse float \[\?\], which cannot be connected'):
        check(models, one("s", str(version), "a", "product", drop=["product"]))
    dropped = one("s", str(version), "a", "product", output_map={"product": "product"}, drop=["y"])
    checked = check(models, dropped, inputs=["a"])
    assert {"a", "product"} == checked.tensors.keys()


def test_a_damaged_model_is_rejected(models: Path) -> None:
    with pytest.raises(PipelineError, match=r'^step "add_sub": .*damaged/saved_model\.pb is damaged'):
        check(models, add_sub(model="damaged"), mul())
