"""Evidence: what the network answered in training for some photos, or what it should have answered.

Both run the network on the pixels of each recipe that is tried.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import EvidenceError
from savedmodel_bakery.exporter.evidence.evidence import (
    EXACT,
    SAME,
    Certainty,
    Evidence,
    Fit,
    Groups,
    combinations,
    describe_line,
    digest_of,
    farther,
    one_of,
)
from savedmodel_bakery.exporter.evidence.search import PIXELS
from savedmodel_bakery.exporter.recipe import SCALES, Preprocessing, describe_scale
from savedmodel_bakery.exporter.sources.network import Network
from savedmodel_bakery.exporter.tasks.choose import check_labels
from savedmodel_bakery.exporter.validation import reference

_BATCH = 16  # photos that run at once
_ROUNDING = 0.29  # of pixels to whole levels, root mean square
_BIASES = (0.0, -0.1, 0.0, -0.1)  # of rounding in the mean, for each draw; OpenCV's resize has -0.1
_MOST_LEVEL = 0.05  # of the spread of predictions: a recipe by which a level changes more is a wrong one
_NEAR = 0.005  # of the spread of predictions
_LEAST = 1e-7  # a probability that counts as 0
_TELLING = 1e-3
_FLOAT32 = 1e-7  # by which part a rounded float32 differs from the number that was meant
# Quantiles of the normal distribution for 0.5 % and 0.01 %, and the fewest photos of which a mean says something.
_LIKELY, _SURE, _FEWEST = 2.576, 3.719, 10
_TEMPERATURES = np.geomspace(0.02, 50, 41)
_LINE_STARTS, _FAR = 3, 4.0
_STEPS, _STEP, _MOST_DAMPING = 12, 1e-3, 1e6
_LOG_STD = math.log(1.2), 8.0  # no network takes pixels that are spread further
_PER_UNKNOWN = 3  # numbers that are predicted, or any recipe could be made to agree


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def _sigmoid(scores: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-scores.clip(-500, 500))))


def _scales(current: Preprocessing) -> Iterator[dict[str, Any]]:
    """Return scales with each order of colours that the network can take."""
    if current.channels == "GRAY":  # with one mean and deviation
        plain = [name for name, line in SCALES.items() if all(len(set(part)) == 1 for part in line)]
        return combinations(scale=plain)(current)
    return combinations(scale=list(dict.fromkeys([*SCALES, current.scale])), channels=("RGB", "BGR"))(current)


_NETWORK_GROUPS: Groups = {("scale", "channels"): _scales, **PIXELS}
_LABEL_GROUPS: Groups = {
    ("scale", "channels"): _scales,
    ("orientation",): one_of("orientation", "exif", "ignore"),
    ("alpha",): one_of("alpha", "background", "drop"),
    ("crop",): one_of("crop", "none", "1", "7/8", "letterbox"),
    ("resize", "antialias"): combinations(resize=("bilinear", "bicubic", "area"), antialias=(False, True)),
}
"""Few, as a label tells little."""


_TASKS = {"logits softmax": "classify", "logits sigmoid": "multilabel"}
"""Which task makes such probabilities of logits."""


class Runner:
    """Runs a network on the pixels of recipes; each run is kept.

    With `class_names`, which messages call `labels_title`, its outputs must be those of these labels.
    """

    def __init__(self, network: Network, class_names: Sequence[str] = (), labels_title: str = "the labels") -> None:
        self._call = tf.function(network.call, reduce_retracing=True)
        self._class_names, self._labels_title = class_names, labels_title
        self._kept: dict[bytes, np.ndarray] = {}

    def run(self, pixels: np.ndarray, recipe: Preprocessing) -> np.ndarray:
        """Return the only output of the network, float64 [photos, units]."""
        normalised = np.ascontiguousarray(reference.normalise(pixels, recipe), np.float32)
        key = hashlib.blake2b(normalised.tobytes()).digest()
        if key not in self._kept:
            batches = [normalised[start : start + _BATCH] for start in range(0, len(normalised), _BATCH)]
            self._kept[key] = np.concatenate([self._run(batch) for batch in batches])
        return self._kept[key]

    def _run(self, batch: np.ndarray) -> np.ndarray:
        try:
            output = self._call(tf.constant(batch))
        except Exception as error:  # the network's own code runs here
            raise EvidenceError(f"the network does not accept images {list(batch.shape)}: {error}") from error
        if isinstance(output, Mapping):
            if len(output) > 1:
                raise EvidenceError(
                    f"the network has several outputs, {', '.join(output)}: predictions and labels can be compared "
                    "only with one; use --inputs"
                )
            (output,) = output.values()
        array = np.asarray(output, np.float64)
        if array.ndim == 4 and array.shape[1:3] == (1, 1):
            array = array[:, 0, 0]
        array = array.reshape(len(batch), -1) if array.shape == (len(batch),) else array
        if array.ndim != 2 or len(array) != len(batch):
            raise EvidenceError(
                f"the network returns {list(array.shape)}: its answers can be compared with predictions or labels only "
                "if it returns one row of numbers per photo; use --inputs"
            )
        if self._class_names:
            is_single = array.shape[1] == 1
            count, decider = (2, "one output") if is_single else (array.shape[1], "")
            check_labels(self._class_names, self._labels_title, count, decider=decider)
        return array


class Predictions(Evidence):
    """What the network answered in training for some photos; see `Evidence`.

    The distance is the mean over photos of the root mean square of differences, in the unit of the predictions: one
    photo, such as the only one that is transparent, does not hide what the others tell.
    """

    kind = "predictions"
    groups = _NETWORK_GROUPS

    def __init__(self, photos: Sequence[Path], rows: np.ndarray, runner: Runner, names: Sequence[str] = ()) -> None:
        """Keep the photos and `rows`, float64 [photos, units], NaN where nothing is predicted.

        With `names`, the columns of `rows` are those of these labels, and not in the order of the network's outputs.
        """
        self.photos, self._rows, self._runner, self._names = photos, rows, runner, names
        self.digest = digest_of(photos, rows)
        self._known = ~np.isnan(rows)
        known = rows[self._known]
        self._are_probabilities = bool((known >= 0).all() and (known <= 1).all())
        self._spread = max(float(known.std()), _LEAST)
        self.noise = max(_resolution(known), 1e-6 * self._spread)
        self._level = 1.0
        self._reordered: list[tuple[float, np.ndarray]] = []

    def fit(self, pixels: np.ndarray, candidate: Preprocessing) -> Fit:
        """See Evidence."""
        scores = self._scores(pixels, candidate)
        readings = self._readings(scores)
        distances = {outputs: self._distance(made) for outputs, made in readings}
        least = min(distances.values())
        near = [name for name, distance in distances.items() if distance <= least + self.noise]
        follows = _shared("outputs", [name.partition(" ")[0] for name in near])
        if scores.shape[1] > 1:
            follows |= _shared("task", [_TASKS.get(name) for name in near])
        if self._names and self._known.all():
            self._reordered += filter(None, (self._reorder(made) for _, made in readings))
        return Fit(least, follows)

    def _reorder(self, made: np.ndarray) -> tuple[float, np.ndarray] | None:
        """Return the distance in another order of labels, and the output of each label."""
        squares = (made**2).sum(axis=0)[:, np.newaxis] - 2 * made.T @ self._rows + (self._rows**2).sum(axis=0)
        order = _order(squares)
        return None if order is None else (self._distance(made[:, order]), order)

    def measure(self, pixels: np.ndarray, nearest: Preprocessing) -> None:
        """See Evidence."""
        readings = dict(self._readings(self._scores(pixels, nearest)))
        name = min(readings, key=lambda name: self._distance(readings[name]))
        random = np.random.default_rng(0)
        differences = []
        for bias in _BIASES:
            rounded = pixels + random.uniform(-0.5, 0.5, pixels.shape) + bias
            made = dict(self._readings(self._scores(rounded, nearest)))[name]
            differences.append(self._mean_difference(made - readings[name]))
        difference = max(differences)  # of few photos, a draw says little
        self._level = max(min(difference / _ROUNDING, _MOST_LEVEL * self._spread), self.noise / _ROUNDING)

    def refine(self, pixels: np.ndarray, nearest: Preprocessing, check_time: Callable[[], None]) -> dict[str, Any]:
        """See Evidence. Finds mean and standard deviation, beginning with the nearest named scales."""
        if self._are_probabilities:  # those near 0 and 1 tell little, and they add up to 1
            free = ((self._rows > _TELLING) & (self._rows < 1 - _TELLING)).sum() - len(self._rows)
        else:
            free = self._known.sum()
        if free < _PER_UNKNOWN * (2 if nearest.channels == "GRAY" else 6):
            return {}
        named = [nearest, *(replace(nearest, **values) for values in _scales(nearest))]
        distances = {recipe: self.fit(pixels, recipe).distance for recipe in named}
        near = sorted(distances, key=lambda recipe: distances[recipe])[:_LINE_STARTS]
        near = [recipe for recipe in near if distances[recipe] < _FAR * distances[near[0]]]
        fitted = [self._fit_line(pixels, begin, check_time) for begin in near]
        best = min(fitted, key=lambda recipe: self.fit(pixels, recipe).distance)
        return {"scale": describe_line(*best.mean_and_std), "channels": best.channels}

    def _fit_line(self, pixels: np.ndarray, begin: Preprocessing, check_time: Callable[[], None]) -> Preprocessing:
        """Return the recipe with the nearest mean and standard deviation, by the method of Levenberg and Marquardt."""
        repeat = 3 if begin.channels == "GRAY" else 1
        mean, std = (np.array(numbers[: 3 // repeat]) for numbers in begin.mean_and_std)
        line = np.concatenate([mean / 255, np.log(std)])

        def recipe(values: np.ndarray) -> Preprocessing:
            mean, log_std = np.split(values, 2)
            std = np.exp(log_std.clip(*_LOG_STD))
            return replace(begin, scale=describe_scale([*mean.clip(-8, 8) * 255] * repeat, [*std] * repeat))

        def differences(values: np.ndarray) -> np.ndarray:
            readings = [made for _, made in self._readings(self._scores(pixels, recipe(values)))]
            return np.asarray((min(readings, key=self._distance) - self._rows)[self._known])

        left, damping = differences(line), 1e-3
        for _ in range(_STEPS):
            check_time()
            slopes = np.stack([(differences(line + step) - left) / _STEP for step in np.eye(len(line)) * _STEP], axis=1)
            square, slope = slopes.T @ slopes, slopes.T @ left
            while damping < _MOST_DAMPING:
                damped = square + damping * np.diag(square.diagonal() + _LEAST)
                changed = line - np.linalg.lstsq(damped, slope, rcond=None)[0]
                new = differences(changed)
                if new @ new < left @ left:
                    break
                damping *= 10
            else:
                break
            line, left, damping = changed, new, damping / 10
        return recipe(line)

    def order(self, best: Fit) -> np.ndarray | None:
        """See Evidence."""
        distance, order = min(self._reordered, key=itemgetter(0), default=(math.inf, None))
        return order if distance < best.distance / 2 and best.distance > self.noise else None

    def is_same(self, fit: Fit) -> bool:
        """See Evidence."""
        return fit.distance <= SAME * self._level

    def is_exact(self, fit: Fit) -> bool:
        """See Evidence."""
        return fit.distance <= EXACT * self._level

    def ends_search(self, fit: Fit) -> bool:
        """See Evidence. A level may seem to change much for a wrong recipe, which then agrees by mistake."""
        return self.is_exact(fit) or (self.is_same(fit) and fit.distance <= _NEAR * self._spread)

    def certainty(self, best: Fit, other: Fit) -> Certainty:
        """See Evidence. Predictions that agree but for noise do not come from pixels that were rounded otherwise."""
        is_told = other.distance - best.distance > self.noise
        level = self._level if best.distance > self.noise else self.noise
        return farther(best.distance, other.distance, level) if is_told else Certainty.NOT_TOLD

    def shown(self, fit: Fit) -> str:
        """See Evidence."""
        return f"{fit.distance:.2g}"

    def _scores(self, pixels: np.ndarray, candidate: Preprocessing) -> np.ndarray:
        scores = self._runner.run(pixels, candidate)
        units, predicted = scores.shape[1], self._rows.shape[1]
        if units != predicted and (units, predicted) != (1, 2):
            raise EvidenceError(f"the predictions have {predicted} numbers per photo, the network returns {units}")
        return scores

    def _readings(self, scores: np.ndarray) -> list[tuple[str, np.ndarray]]:
        """Return what predictions may be of the network's outputs, each with the value of `outputs` it means."""
        is_single = scores.shape[1] < self._rows.shape[1]  # a sigmoid, predicted beside its complement
        both = np.concatenate([-scores, scores], axis=1) if is_single else scores
        if not self._are_probabilities:
            return [("logits", both)]
        if is_single:
            return [
                ("probabilities", np.concatenate([1 - scores, scores], axis=1)),
                ("logits sigmoid", _sigmoid(both)),
            ]
        softmax = [("logits softmax", _softmax(scores))] if scores.shape[1] > 1 else []  # that of one number is 1
        return [("probabilities", scores), *softmax, ("logits sigmoid", _sigmoid(scores))]

    def _distance(self, made: np.ndarray) -> float:
        return self._mean_difference(made - self._rows)

    def _mean_difference(self, differences: np.ndarray) -> float:
        squares = np.where(self._known, differences, 0) ** 2
        return float(np.sqrt(squares.sum(axis=1) / self._known.sum(axis=1)).mean())


class Labelled(Evidence):
    """The right label of each photo; see `Evidence`.

    The distance is the mean of -log p, of the probabilities p of the right labels, after their logarithms have been
    divided by the temperature for which it is least: a network that is only more confident is not nearer. One recipe is
    told from another by Student's t of the differences, photo by photo, one-sided: likely at a level of 0.5 %, surely
    at 0.01 %, as many recipes are tried; on 10 photos or more, and only if p differs by 5 % in the mean. The resize is
    not judged: a network is not always best with that of its training.
    """

    kind = "labelled photos"
    groups = _LABEL_GROUPS
    untold = frozenset({"resize", "antialias"})
    noise = 0.05

    def __init__(self, photos: Sequence[Path], ids: np.ndarray, runner: Runner) -> None:
        """Keep the photos and the ids of their labels, int [photos]."""
        self._present = np.unique(ids)
        self._reordered: list[tuple[Fit, np.ndarray]] = []
        self.photos, self._ids, self._runner = photos, ids, runner
        self.digest = digest_of(photos, ids)

    def fit(self, pixels: np.ndarray, candidate: Preprocessing) -> Fit:
        """See Evidence."""
        outputs, probabilities = _probabilities(self._runner.run(pixels, candidate))
        accuracy = float((probabilities.argmax(axis=1) == self._ids).mean())
        probability = float(probabilities[np.arange(len(self._ids)), self._ids].mean())
        logarithms = np.log(probabilities.clip(_LEAST))
        if len(self._present) == probabilities.shape[1]:
            means = np.stack([logarithms[self._ids == label].mean(axis=0) for label in self._present], axis=1)
            units = _order(-means)
            if units is not None:
                self._reordered.append((Fit.of_losses(_tempered_losses(logarithms, units[self._ids]), {}), units))
        follows = {"outputs": outputs, "accuracy": accuracy, "probability": probability}
        return Fit.of_losses(_tempered_losses(logarithms, self._ids), follows)

    def order(self, best: Fit) -> np.ndarray | None:
        """See Evidence."""
        if not self._reordered:
            return None
        fit, units = min(self._reordered, key=lambda reordered: reordered[0].distance)
        return units if self.certainty(best=fit, other=best) is Certainty.SURE else None

    def is_same(self, fit: Fit) -> bool:  # noqa: ARG002
        """See Evidence."""
        return True

    def is_exact(self, fit: Fit) -> bool:  # noqa: ARG002
        """See Evidence."""
        return False

    def certainty(self, best: Fit, other: Fit) -> Certainty:
        """See Evidence."""
        assert best.losses is not None
        assert other.losses is not None
        differences = other.losses - best.losses
        if len(differences) < _FEWEST:
            return Certainty.NOT_TOLD
        error = differences.std(ddof=1) / math.sqrt(len(differences))
        if differences.mean() <= max(_student(_LIKELY, len(differences) - 1) * error, self.noise):
            return Certainty.NOT_TOLD
        is_sure = differences.mean() > _student(_SURE, len(differences) - 1) * error
        return Certainty.SURE if is_sure else Certainty.LIKELY

    def shown(self, fit: Fit) -> str:
        """See Evidence."""
        answers = f"accuracy {fit.follows['accuracy']:.2f}, {fit.follows['probability']:.2f} for the right label"
        guesses = np.full(len(self._ids), math.log(len(self._present)))
        is_better = self.certainty(best=fit, other=Fit.of_losses(guesses, {}))
        return answers if is_better else f"{answers}, which is not surely better than chance"


def _student(normal: float, freedom: int) -> float:
    """Return the quantile of Student's t for one of the normal distribution (Abramowitz and Stegun 1964, 26.7.5)."""
    square = normal**2
    terms = (
        normal * (square + 1) / 4,
        normal * (5 * square**2 + 16 * square + 3) / 96,
        normal * (3 * square**3 + 19 * square**2 + 17 * square - 15) / 384,
    )
    return normal + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


def _tempered_losses(logarithms: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return -log p for the right labels at the temperature at which its mean is least, float64 [photos]."""
    tempered = logarithms / _TEMPERATURES[:, np.newaxis, np.newaxis]
    peak = tempered.max(axis=-1, keepdims=True)
    totals = np.log(np.exp(tempered - peak).sum(axis=-1)) + peak[..., 0]
    losses = totals - tempered[:, np.arange(len(ids)), ids]
    return np.asarray(losses[losses.mean(axis=1).argmin()])


def _shared(field: str, values: Sequence[str | None]) -> dict[str, str]:
    """Return the value of a field if all are the same one; nothing otherwise."""
    return {field: values[0]} if values[0] is not None and len(set(values)) == 1 else {}


def _probabilities(scores: np.ndarray) -> tuple[str, np.ndarray]:
    """Return probabilities of labels, and whether the network returns them or logits."""
    are_probabilities = bool((scores >= 0).all() and (scores <= 1).all())
    outputs = "probabilities" if are_probabilities else "logits"
    if scores.shape[1] == 1:
        of_second = scores if are_probabilities else _sigmoid(scores)
        return outputs, np.concatenate([1 - of_second, of_second], axis=1)
    if not are_probabilities:
        return outputs, _softmax(scores)
    return outputs, scores / np.maximum(scores.sum(axis=1, keepdims=True), _LEAST)


def _order(costs: np.ndarray) -> np.ndarray | None:
    """Return the output that costs least for each label, of costs [outputs, labels].

    None if one serves for two, or it is the usual order.
    """
    units = costs.argmin(axis=0)
    is_usual = np.array_equal(units, np.arange(len(units)))
    return None if is_usual or len(np.unique(units)) < len(units) else units


def _resolution(numbers: np.ndarray) -> float:
    """Return the mean error of numbers that were written with few digits; 0 for others."""
    for digits in range(1, 7):
        if np.allclose(numbers, numbers.round(digits), rtol=_FLOAT32, atol=0):
            return float(_ROUNDING * 10.0**-digits)
    return 0.0
