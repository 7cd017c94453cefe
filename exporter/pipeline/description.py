"""The pipeline file that a composed SavedModel contains: the file it was made of, with the types of its tensors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from savedmodel_bakery.errors import PipelineError
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline
from savedmodel_bakery.exporter.pipeline.pipeline_file import Pipeline, parse_pipeline
from savedmodel_bakery.exporter.publish import PIPELINE_FILE
from savedmodel_bakery.small_files import read_small
from savedmodel_bakery.toml import parse_toml

_TENSORS = "tensors"


class Description(NamedTuple):
    """A pipeline as a composed SavedModel states it.

    Attributes:
        pipeline: with the folders of the versions that were composed, relative to the working directory of then.
        forms: dtype and shape of each tensor, such as `float [?, 4]`, by name.
    """

    pipeline: Pipeline
    forms: dict[str, str]


def describe(checked: CheckedPipeline) -> str:
    """Return the description of a pipeline as TOML."""
    import tomli_w

    pipeline = checked.pipeline
    versions = {step.name: step.version for step in checked.steps}
    content = {
        "name": pipeline.name,
        "inputs": pipeline.inputs,
        "outputs": pipeline.outputs,
        _TENSORS: {name: tensor.form for name, tensor in checked.tensors.items()},
        "steps": [{**asdict(step), "model": str(versions[step.name])} for step in pipeline.steps],
    }
    return tomli_w.dumps(content)


def read_description(version: Path) -> Description | None:
    """Read the description in a version's folder; None if it contains no pipeline.

    Raises:
        PipelineError: the description can't be read, or is damaged.
    """
    file = version / PIPELINE_FILE
    if not file.is_file():
        return None
    try:
        content = parse_toml(read_small(file).decode())
        forms = content.pop(_TENSORS)
        pipeline = parse_pipeline(content, folder=Path(), default_name=version.name)
        made = [name for step in pipeline.steps for name in step.output_map.values()]
        return Description(pipeline, {name: forms[name] for name in (*pipeline.inputs, *made)})
    except (OSError, ValueError, KeyError, TypeError, PipelineError) as error:
        raise PipelineError(f"the pipeline in {version} is damaged: {error}") from error
