"""Composes a pipeline: the signatures that its file connects become one validated, published version.

pipeline file ─► checked ─► one graph ─► staged SavedModel ─► outputs = those of the steps, one by one ─► version
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from savedmodel_bakery.exporter import publish, resources
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline
from savedmodel_bakery.exporter.pipeline.description import describe
from savedmodel_bakery.exporter.pipeline.examples import make_examples
from savedmodel_bakery.exporter.pipeline.graph import save_pipeline
from savedmodel_bakery.exporter.pipeline.validate import validate_pipeline
from savedmodel_bakery.exporter.validation.session import SessionProcess


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

    Raises:
        PipelineError: a model can't be loaded or composed, or a step fails on an example.
        RecipeError: the example does not fit the inputs.
        ParityError: a photo can't be read.
        VerificationError: the SavedModel's outputs differ from those of the steps called one after another.
        PublishError: the version exists, or can't be written.
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
