"""Evidence of how photos were prepared in training, and the recipe that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.evidence.answer_files import photos_in_folders, read_labelled, read_predictions
from savedmodel_bakery.exporter.evidence.answers import Runner
from savedmodel_bakery.exporter.evidence.evidence import Evidence, Source
from savedmodel_bakery.exporter.evidence.inputs import read_inputs
from savedmodel_bakery.exporter.evidence.judge import Judgement, judge
from savedmodel_bakery.exporter.recipe.model import TASKS_WITHOUT_LABELS, Answers
from savedmodel_bakery.exporter.sources.network import Network

__all__ = ["Judgement", "Source", "Sources", "default_photos", "judge_all"]


class Sources(NamedTuple):
    """Where evidence is; see `bake`."""

    inputs: Source | None = None
    predictions: Source | None = None
    labelled: str | Path | None = None


def default_photos(labelled: str | Path | None) -> list[Path]:
    """Return the photos to validate on if none are named: labelled ones in folders, or else the example photos."""
    if labelled is not None and Path(labelled).is_dir() and (photos := photos_in_folders(Path(labelled))):
        return photos
    return resources.example_photos()


def judge_all(
    sources: Sources,
    stated: Mapping[str, Any],
    network: Network,
    photos: Sequence[Path],
    seconds: float,
    *,
    progress: Callable[[str], None],
) -> tuple[list[Judgement], dict[str, Any]]:
    """Compare a recipe with each kind of evidence there is; what one shows is stated for the next.

    Returns what each says, and the values of all, by the names of the recipe's fields.

    Raises:
        EvidenceError: the evidence can't be read, contradicts what is stated, or no recipe agrees with it.
        SourceError: a function can't be imported.
        LabelError: the labels can't be read, or are not those of the network's outputs.
    """
    labels = {**network.defaults, **stated}.get("labels")
    class_names = [] if stated.get("task") in TASKS_WITHOUT_LABELS else resources.read_class_names(labels)
    runner = Runner(network, class_names, Answers(labels=labels).labels_title)
    readers: list[Callable[[], Evidence]] = []
    if sources.inputs is not None:
        inputs = sources.inputs
        readers.append(lambda: read_inputs(inputs, photos))
    if sources.predictions is not None:
        predictions = sources.predictions
        readers.append(lambda: read_predictions(predictions, photos, runner, class_names))
    if sources.labelled is not None:
        labelled = Path(sources.labelled)
        readers.append(lambda: read_labelled(labelled, photos, runner, class_names))
    judgements: list[Judgement] = []
    values: dict[str, Any] = {}
    for read in readers:
        evidence = read()
        progress(f"comparing recipes with {len(evidence.photos)} {evidence.kind}")
        judgement = judge(evidence, stated, usual=network.defaults, class_names=class_names, seconds=seconds)
        judgements.append(judgement)
        values = {**judgement.values, **values, **judgement.told}
        stated = {**judgement.told, **stated}
    return judgements, values
