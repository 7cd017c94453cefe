"""Checks a canary before its promotion: with its goldens, and with photos that the stable version answers too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from savedmodel_bakery.answers import run_lengths
from savedmodel_bakery.answers.other_inputs import other_inputs
from savedmodel_bakery.answers.photo_files import FileList, open_file
from savedmodel_bakery.answers.rows import Row
from savedmodel_bakery.answers.signatures import read_signatures
from savedmodel_bakery.answers.task import Task
from savedmodel_bakery.answers.tasks import find_task
from savedmodel_bakery.client.bulk.job import Job
from savedmodel_bakery.client.goldens import GoldensError, read_goldens, replay
from savedmodel_bakery.client.rollout import RolloutError
from savedmodel_bakery.client.rollout.rollout import Rollout
from savedmodel_bakery.errors import one_line
from savedmodel_bakery.storage.store import Store

_MAX_LISTED = 10
_REQUESTS = 4  # at a time


def check_goldens(rollout: Rollout, folder: Path | Store, version: int) -> None:
    """Send the goldens in the folder of a version to it on each server. Report differences and raise RolloutError."""
    try:
        goldens = read_goldens(folder)
    except GoldensError as error:
        reason = f"cannot check version {version}: {error}; to promote it without goldens, add --no-goldens"
        raise RolloutError(reason) from error
    differing = []
    for server in rollout.servers:
        with server.open_client(rollout.model, version) as client:
            for golden in goldens.requests:
                if differences := replay(golden, client, goldens.tolerances):
                    reason = one_line("; ".join(differences))
                    differing.append(f"{server.name}: {golden.signature} {golden.number}: {reason}")
    for line in differing[:_MAX_LISTED]:
        rollout.report(line)
    total = len(goldens.requests) * len(rollout.servers)
    if differing:
        raise RolloutError(
            f"version {version} was not promoted: {len(differing)} of {total} responses differ from its goldens"
        )
    rollout.report(f"{total} of {total} responses agree with the goldens of version {version}")


@dataclass(frozen=True)
class Limits:
    """How far the answers of two versions may differ."""

    min_equal_labels: float  # share of the photos
    max_score_difference: float  # in the mean


@dataclass(frozen=True)
class Agreement:
    """How the answers of two versions compare, on the photos that at least one of them could read.

    Labels are the label of a classifier, the set of labels of a tagger, all labels of a detector, or the largest class
    of a segmenter. Vectors and numbers have no labels, so all are equal. A photo is not equal either if a score is
    finite in one version only. `mean_difference` is the mean absolute difference of the scores, shares or numbers that
    both return for the same label, first over the labels of a photo, then over the photos; infinite if only one of two
    scores is finite. That of pictures is a part of white, and that of masks 1 less their intersection over union.
    """

    photos: int
    equal: int
    mean_difference: float


def compare_on_photos(rollout: Rollout, photos: FileList, limits: Limits, *, stable: int, canary: int) -> None:
    """Send photos to both versions, on the first server, and report how they agree; RolloutError if they do not."""
    (task, rows), (canary_task, canary_rows) = (_answer(rollout, photos, version) for version in (stable, canary))
    if task != canary_task:
        raise RolloutError(f"version {canary} has {canary_task}, and version {stable} {task}")
    if changed := rows.keys() ^ canary_rows.keys():
        raise RolloutError(
            f"photos were added or removed while versions {stable} and {canary} answered them, such as {min(changed)}: "
            "run the command again"
        )
    agreement = compare_rows(task, rows, canary_rows)
    if not agreement.photos:
        reasons = [f", such as {key}: {row['error']}" for key, row in rows.items()]
        raise RolloutError(
            f"no photo to compare versions {stable} and {canary} on: neither could read any of {len(rows)}"
            f"{''.join(reasons[:1])}"
        )
    share = agreement.equal / agreement.photos
    rollout.report(
        f"versions {stable} and {canary} have equal labels for {agreement.equal} of {agreement.photos} photos "
        f"({share:.3f}; at least {limits.min_equal_labels:g} is required); scores differ by "
        f"{agreement.mean_difference:.4f} in the mean (at most {limits.max_score_difference:g})"
    )
    reasons = []
    if share < limits.min_equal_labels:
        reasons.append("too few photos have equal labels (--min-equal-labels)")
    if not agreement.mean_difference <= limits.max_score_difference:  # one of them may be NaN
        reasons.append("scores differ too much (--max-score-difference)")
    if reasons:
        raise RolloutError(f"version {canary} was not promoted: {' and '.join(reasons)}")


def compare_rows(task: Task[Any], rows: Mapping[str, Row], others: Mapping[str, Row]) -> Agreement:
    """Compare two rows of each photo, by its key; both must have the same keys, and the columns of the task.

    A photo that one version alone could read has other labels.
    """
    equal, differences = [], []
    for key, row in rows.items():
        other = others[key]
        if not row["ok"] and not other["ok"]:
            continue
        (labels, scores), (other_labels, other_scores) = map(task.labels_and_scores, (row, other))
        found = [_difference(scores[name], other_scores[name]) for name in scores.keys() & other_scores.keys()]
        equal.append(row["ok"] == other["ok"] and labels == other_labels and math.inf not in found)
        if found:
            differences.append(fmean(found))
    return Agreement(len(equal), sum(equal), fmean(differences) if differences else 0.0)


def _answer(rollout: Rollout, photos: FileList, version: int) -> tuple[Task[Any], dict[str, Row]]:
    """Return the task of a version, and its rows by key."""
    with ExitStack() as stack:
        open_client = rollout.servers[0].open_client
        clients = [stack.enter_context(open_client(rollout.model, version)) for _ in range(_REQUESTS)]
        signatures = read_signatures(clients[0].metadata())
        task, signature = find_task(signatures)
        others = other_inputs(signatures.find(signature).inputs)
        job = Job(
            clients, model=rollout.model, task=task, signature=signature, others=others, batch_size=8, retry_s=60.0
        )
        opened = (photo for file in photos for photo in open_file(file, lambda _: True, all_files=photos.all_files))
        return task, {row["image"]: row for rows in job.run(opened) for row in rows}


def _difference(score: Any, other: Any) -> float:
    """Return the absolute difference; infinite if only one is finite. As for goldens, NaN equals NaN."""
    if isinstance(score, str):
        return run_lengths.difference(score, other)
    if isinstance(score, np.ndarray):
        return float(np.abs(score - other).mean())
    if score == other or (math.isnan(score) and math.isnan(other)):
        return 0.0
    return abs(score - other) if math.isfinite(score) and math.isfinite(other) else math.inf
