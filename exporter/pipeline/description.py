"""The pipeline file that a composed SavedModel contains: the file it was made of, with the types of its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from savedmodel_bakery.exporter.errors import PipelineError
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline
from savedmodel_bakery.exporter.pipeline.pipeline_file import Pipeline, parse_pipeline
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
    content: dict[str, Any] = {
        "name": pipeline.name,
        "inputs": list(pipeline.inputs),
        "outputs": list(pipeline.outputs),
        _TENSORS: {name: tensor.form for name, tensor in checked.tensors.items()},
        "steps": [
            {
                "name": step.name,
                "model": str(versions[step.name]),
                "signature": step.signature,
                "input_map": dict(step.input_map),
                "output_map": dict(step.output_map),
                "drop": list(step.drop),
            }
            for step in pipeline.steps
        ],
    }
    return tomli_w.dumps(content)


def parse_description(text: str, path: Path) -> Description:
    """Parse the description in the composed SavedModel `path`.

    Raises:
        PipelineError: it is damaged.
    """
    try:
        content = parse_toml(text)
        forms = {str(name): str(form) for name, form in content.pop(_TENSORS, {}).items()}
        return Description(parse_pipeline(content, folder=Path(), default_name=path.name), forms)
    except (ValueError, AttributeError, PipelineError) as error:
        raise PipelineError(f"the pipeline in {path} is damaged: {error}") from error
