"""Composes a pipeline: the signatures that its file connects become one validated, published version.

pipeline file ─► checked ─► one graph ─► staged SavedModel ─► outputs = those of the steps, one by one ─► version
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import PipelineError, VerificationError
from savedmodel_bakery.exporter import publish, resources
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline
from savedmodel_bakery.exporter.pipeline.description import describe
from savedmodel_bakery.exporter.pipeline.examples import Example, make_examples
from savedmodel_bakery.exporter.pipeline.graph import save_pipeline
from savedmodel_bakery.exporter.pipeline.pipeline_file import DEFAULT_SIGNATURE
from savedmodel_bakery.exporter.pipeline.state import loaded_session
from savedmodel_bakery.exporter.validation.goldens import MAX_PHOTOS, golden_tolerances, write_goldens
from savedmodel_bakery.exporter.validation.session import PredictionLog, SessionProcess, decode_outputs, predict_request
from savedmodel_bakery.wire.tensors import as_array

# Requests that are compared at once, which limits the memory that they take.
_BATCH = 100


def compose(
    checked: CheckedPipeline,
    *,
    base_path: Path,
    version: int | None = None,
    photos: Sequence[Path] | None = None,
    example: Mapping[str, np.ndarray] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Path, int]:
    """Compose a pipeline into a new version under `base_path`.

    Args:
        checked: the pipeline.
        base_path: the folder of the numbered versions.
        version: its number; None is the next one.
        photos: files for inputs that a step takes as `image`; None uses the example photos that come with the package.
        example: inputs by name to validate it with, instead of photos and generated arrays.
        progress: called with each step, in a few words.

    Returns:
        The version's folder, and the number of requests for which its answers were compared with those of the steps.
    """
    publish.check_free(base_path, version)
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
            description=(publish.PIPELINE_FILE, describe(checked)),
            validate=validate,
        )


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
    with publish.writing(version):
        write_goldens(version, model_name, logs, golden_tolerances(logs))
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
