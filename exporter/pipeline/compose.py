"""Composes a pipeline: the signatures that its file connects become one validated, published version.

pipeline file ─► checked ─► one graph ─► staged SavedModel ─► outputs = those of the steps, one by one ─► version

It is validated with photos for images and generated arrays for other inputs, or with the inputs of an example.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import PipelineError, VerificationError
from savedmodel_bakery.exporter import publish, resources
from savedmodel_bakery.exporter.function.function_module import Input, check_example, generate_array, generate_arrays
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline
from savedmodel_bakery.exporter.pipeline.graph import save_pipeline
from savedmodel_bakery.exporter.pipeline.pipeline_file import DEFAULT_SIGNATURE, Description
from savedmodel_bakery.exporter.pipeline.state import loaded_session
from savedmodel_bakery.exporter.validation.goldens import MAX_PHOTOS, NOT_AN_IMAGE, golden_tolerances, write_goldens
from savedmodel_bakery.exporter.validation.session import (
    PredictionLog,
    SessionProcess,
    decode_outputs,
    predict_request,
    read_photo,
)
from savedmodel_bakery.storage.folders import check_free, writing
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.tensors import as_array

_IMAGE = "image"

# Requests that are compared at once, which limits the memory that they take.
_BATCH = 100


@dataclass(frozen=True)
class Example:
    """Inputs of one request."""

    inputs: dict[str, np.ndarray]
    has_bad_image: bool = False  # whether one of its images is not an image, which the pipeline may reject


def compose(
    checked: CheckedPipeline,
    *,
    base_path: Path,
    version: int | None = None,
    photos: Sequence[Path] | None = None,
    example: Mapping[str, np.ndarray] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Path, int]:
    """Compose a pipeline into a new version under `base_path`, by default the next one.

    It is validated with the inputs of `example`; without them, with generated arrays and with photos, by default those
    that come with the package. Returns the version's folder, and the number of requests for which its answers were
    compared with those of the steps.
    """
    check_free(base_path, version)
    examples = make_examples(checked, resources.example_photos() if photos is None else photos, example)

    def save(path: Path) -> None:
        progress(f"composing {', '.join(step.name for step in checked.steps)}")
        save_pipeline(checked, path)

    def validate(version_folder: Path) -> int:
        progress("verifying it in a fresh process")
        return validate_pipeline(version_folder, session, checked, examples, base_path.name)

    with SessionProcess(on_cpu=True) as session:
        return publish.publish_version(
            base_path,
            version,
            save=save,
            description=(publish.PIPELINE_FILE, describe(checked).to_toml()),
            validate=validate,
        )


def describe(checked: CheckedPipeline) -> Description:
    """Return a pipeline with the versions that its steps run, and the types of all its tensors."""
    versions = {step.name: step.version for step in checked.steps}
    steps = tuple(replace(step, model=versions[step.name]) for step in checked.pipeline.steps)
    forms = {name: tensor.form for name, tensor in checked.tensors.items()}
    return Description(replace(checked.pipeline, steps=steps), forms)


def make_examples(
    checked: CheckedPipeline, photos: Sequence[Path], example: Mapping[str, np.ndarray] | None
) -> Iterator[Example]:
    """Return example inputs of a pipeline, made one by one, because photos may take more memory than there is.

    The photos are for inputs of text that a step takes as `image`; an `example`, inputs by name, replaces them and
    generated arrays.
    """
    inputs = [_declared(checked, name) for name in checked.pipeline.inputs]
    if example is not None:
        return iter([Example(check_example(example, inputs))])
    taken = {step.step.input_map.get(_IMAGE) for step in checked.steps}
    images = {declared.alias for declared in inputs if declared.alias in taken and declared.dtype == dtypes.STRING}
    if not images:
        return map(Example, generate_arrays(inputs))
    return _photo_examples(inputs, images, sorted(photos, key=lambda photo: len(read_photo(photo))))


def _photo_examples(inputs: Sequence[Input], images: Collection[str], photos: Sequence[Path]) -> Iterator[Example]:
    """Yield the smallest photo together with a text that is not an image, then each photo."""
    generator = np.random.default_rng(0)

    def fill(*contents: bytes) -> dict[str, np.ndarray]:
        return {
            declared.alias: _repeated(declared, contents)
            if declared.alias in images
            else generate_array(declared, len(contents), generator)
            for declared in inputs
        }

    yield Example(fill(read_photo(photos[0]), NOT_AN_IMAGE), has_bad_image=True)
    for photo in photos:
        yield Example(fill(read_photo(photo)))


def _declared(checked: CheckedPipeline, name: str) -> Input:
    form = checked.tensors[name]
    shape = None if form.shape is None else tuple(None if size < 0 else size for size in form.shape)
    return Input(name, dtypes.BY_NAME[form.dtype], shape)


def _repeated(declared: Input, contents: Sequence[bytes]) -> np.ndarray:
    """Return an array that fits an input, filled with the contents in turn."""
    sizes = (None,) if declared.shape is None else declared.shape
    shape = tuple(len(contents) if size is None else size for size in sizes)
    return np.resize(np.array(contents, object), shape)


def validate_pipeline(
    version: Path, session: SessionProcess, checked: CheckedPipeline, examples: Iterable[Example], model_name: str
) -> int:
    """Compare a staged version with its steps, bit for bit on the CPU, and write goldens into it.

    Returns the number of examples, of which at most `_BATCH` are in memory; the first ones become goldens.
    """
    logs: list[PredictionLog] = []
    compared = 0
    remaining = iter(examples)
    while batch := list(islice(remaining, _BATCH)):
        expected = run_steps(checked, batch)
        answered = [(example, outputs) for example, outputs in zip(batch, expected, strict=True) if outputs is not None]
        requests = [predict_request(DEFAULT_SIGNATURE, example.inputs) for example, _ in answered]
        responses = session.run(version, requests)
        for log, (_, outputs) in zip(responses, answered, strict=True):
            _compare(decode_outputs(log), outputs)
        logs += responses[: MAX_PHOTOS + 1 - len(logs)]
        compared += len(responses)
    with writing(version):
        write_goldens(version, model_name, logs, golden_tolerances(logs), warm_up={DEFAULT_SIGNATURE})
    return compared


def run_steps(checked: CheckedPipeline, examples: Sequence[Example]) -> list[dict[str, np.ndarray] | None]:
    """Run the steps of a pipeline one after another, each SavedModel in a session of its own.

    Returns the outputs of the pipeline for each example; None if a step rejects its bad image.
    """
    tensors: list[dict[str, np.ndarray] | None] = [dict(example.inputs) for example in examples]
    for number, step in enumerate(checked.steps, 1):
        needed = {name for later in checked.steps[number:] for name in later.step.input_map.values()}
        needed.update(checked.pipeline.outputs)
        with loaded_session(step.version) as (session, meta_graph):
            signature = meta_graph.signature_def[step.signature.name]
            # Only these, as a caller would: the operations that make them may depend on which outputs are needed.
            fetches = {name: signature.outputs[alias].name for alias, name in step.step.output_map.items()}
            for index, arrays in enumerate(tensors):
                if arrays is None:
                    continue
                feeds = {signature.inputs[alias].name: arrays[name] for alias, name in step.step.input_map.items()}
                try:
                    outputs = session.run(fetches, feeds)
                except (tf.errors.OpError, ValueError) as error:
                    if not examples[index].has_bad_image:
                        reason = error.message if isinstance(error, tf.errors.OpError) else error
                        raise PipelineError(
                            f'step "{step.name}" fails on an example: {reason}; pass inputs that it accepts with '
                            "--example FILE.npz"
                        ) from error
                    tensors[index] = None
                else:
                    arrays.update({name: as_array(value) for name, value in outputs.items()})
                    tensors[index] = {name: array for name, array in arrays.items() if name in needed}
    return tensors


def _compare(outputs: Mapping[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, array in expected.items():
        if difference := _difference(outputs[name], array):
            raise VerificationError(
                f'the output "{name}" of the pipeline is not that of the steps called one after another: {difference}; '
                "steps whose outputs are random or depend on earlier calls cannot be composed"
            )


def _difference(output: np.ndarray, expected: np.ndarray) -> str:
    """Describe how an output differs; empty if all bits are equal."""
    if (output.shape, output.dtype) != (expected.shape, expected.dtype):
        return f"{output.dtype}{list(output.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if output.dtype == object:
        return "" if np.array_equal(output, expected) else "texts differ"
    if output.tobytes() == expected.tobytes():
        return ""
    by = np.nanmax(np.abs(output.astype(np.complex128) - expected.astype(np.complex128)), initial=0)
    return f"numbers differ, by up to {by:.2g}"
