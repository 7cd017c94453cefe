"""Exports SavedModels and pipelines to a Triton model repository."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from savedmodel_bakery.errors import PublishError, TritonError
from savedmodel_bakery.exporter.pipeline.check import CheckedStep, check_pipeline
from savedmodel_bakery.exporter.pipeline.pipeline_file import read_pipeline_file
from savedmodel_bakery.exporter.publish import RECIPE_FILE, check_name, find_version, model_name
from savedmodel_bakery.exporter.signatures import Signature, read_signatures
from savedmodel_bakery.exporter.triton.config import Options, ensemble_config, model_config
from savedmodel_bakery.exporter.triton.repository import Model, write_models
from savedmodel_bakery.exporter.triton.warmup import warmup_requests

DEFAULT_SIGNATURES = ("top_k", "serving_default")

# An ensemble has no files of its own, and runs the newest version of each step.
_ENSEMBLE_VERSION = 1


def export_servable(
    path: Path, repository: Path, *, name: str | None = None, signature_name: str | None = None, options: Options
) -> list[Path]:
    """Write a model that runs one signature of a SavedModel.

    Args:
        path: folder of a version, or of versions, of which the newest is taken.
        repository: folder of Triton's models, created if missing.
        name: of the model; None is that of the folder of versions.
        signature_name: None is the first of `DEFAULT_SIGNATURES` that the SavedModel has.
        options: how it runs.

    Returns:
        The folder of the version in the repository.

    Raises:
        PublishError: there is no SavedModel, or the repository has the version already, or can't be written.
        TritonError: Triton can't run the signature, or not with these options.
    """
    version = find_version(path)
    signature = _find_signature(version, signature_name)
    max_batch_size = options.batch_size(is_per_image=_is_per_image(version))
    name = check_name(model_name(version) if name is None else name)
    return write_models(repository, [_model_of(version, name, signature, options, max_batch_size=max_batch_size)])


def export_pipeline(path: Path, repository: Path, *, name: str | None = None, options: Options) -> list[Path]:
    """Write a model for each step of a pipeline, named PIPELINE.STEP, and an ensemble that connects them.

    All of them have the same maximum batch size: an ensemble passes the batch of the request to all its steps.

    Args:
        path: the pipeline file.
        repository: folder of Triton's models, created if missing.
        name: of the ensemble; None is that of the pipeline.
        options: how the steps run.

    Returns:
        The folders of the versions in the repository, the ensemble's last.

    Raises:
        PipelineError: the file is invalid, a model is missing or damaged, or the steps don't fit together.
        PublishError: the repository has a version already, or can't be written; or a name is not allowed.
        TritonError: Triton can't run a step, or not with these options.
    """
    checked = check_pipeline(read_pipeline_file(path))
    name = check_name(checked.pipeline.name if name is None else name)
    max_batch_size = options.batch_size(is_per_image=all(_is_per_image(step.version) for step in checked.steps))
    models = [
        _step_model(step, f"{name}.{step.name}", options, max_batch_size=max_batch_size) for step in checked.steps
    ]
    ensemble = Model(name, _ENSEMBLE_VERSION, ensemble_config(name, checked, max_batch_size=max_batch_size))
    return write_models(repository, [*models, ensemble])


def _step_model(step: CheckedStep, name: str, options: Options, *, max_batch_size: int) -> Model:
    """Return the model of a step, without the outputs that the pipeline drops."""
    used = [output for output in step.signature.outputs if output.alias in step.step.output_map]
    try:
        signature = replace(step.signature, outputs=used)
        return _model_of(step.version, check_name(name), signature, options, max_batch_size=max_batch_size)
    except (PublishError, TritonError) as error:
        raise type(error)(f'step "{step.name}": {error}') from error


def _model_of(version: Path, name: str, signature: Signature, options: Options, *, max_batch_size: int) -> Model:
    """Return the model that runs a signature of a SavedModel."""
    number = int(version.resolve().name) if version.resolve().name.isdecimal() else 1
    if number == 0:
        raise TritonError(f"{version} cannot run on Triton, which ignores version 0; bake it with another --version")
    if not signature.inputs:
        raise TritonError(f'signature "{signature.name}" cannot run on Triton: it has no inputs')
    warmup = warmup_requests(version, signature, max_batch_size=max_batch_size)
    files = {data.file: data.data for request in warmup for data in request.values()}
    config = model_config(name, signature, options, warmup, max_batch_size=max_batch_size)
    return Model(name, number, config, files, version)


def _find_signature(version: Path, name: str | None) -> Signature:
    """Return a signature of a SavedModel; None is the first of `DEFAULT_SIGNATURES` that it has."""
    signatures = {signature.name: signature for signature in read_signatures(version)}
    for candidate in DEFAULT_SIGNATURES if name is None else (name,):
        if candidate in signatures:
            return signatures[candidate]
    shown = ", ".join(f'"{each}"' for each in signatures)
    if name is None:
        raise TritonError(
            f"{version} has no signature {' or '.join(DEFAULT_SIGNATURES)}; choose one with --signature-name: {shown}"
        )
    raise TritonError(f'signature "{name}" not found in {version}; it has {shown}')


def _is_per_image(version: Path) -> bool:
    """Whether a SavedModel was baked for images, so that each row of its signatures is an image of its own."""
    return (version / RECIPE_FILE).is_file()
