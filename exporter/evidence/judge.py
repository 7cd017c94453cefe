"""Compares evidence with what is stated, and completes the recipe by what it shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from savedmodel_bakery.defaults import SEARCH_S
from savedmodel_bakery.errors import EvidenceError, RecipeError
from savedmodel_bakery.exporter.evidence.evidence import Certainty, Evidence
from savedmodel_bakery.exporter.evidence.search import Alternative, Found, Search
from savedmodel_bakery.exporter.recipe import LETTERBOXES, Preprocessing, Recipe
from savedmodel_bakery.exporter.recipe.fields import fields_of

_START = {"crop": "none", "resize": "bilinear", "antialias": False, "scale": "0..1", "channels": "RGB"}
_PIXELS = ("crop", "crop_margin", "padding", "resize", "antialias", "orientation", "jpeg_dct", "alpha", "white")
_FOUND = (*_PIXELS, "scale", "channels")
_TELLING = ("found", "likely")
_FOLLOWING = ("outputs", "task")


@dataclasses.dataclass(frozen=True, repr=False)
class Judgement:
    """What evidence says of a recipe.

    Attributes:
        kind: the name of the kind of evidence, in the plural.
        photos: the number of photos.
        digest: the SHA-256 of the evidence.
        distance: how far the recipe is from the evidence, in the unit of its kind.
        agreement: the distance in words.
        values: the values of the recipe's fields, stated or found.
        remarks: how well the evidence fixes each field, by its name.
    """

    kind: str
    photos: int
    digest: str
    distance: float
    agreement: str
    values: Mapping[str, Any]
    remarks: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the agreement."""
        return f"<Judgement: the recipe {self.summary}>"

    @property
    def summary(self) -> str:
        """The agreement as the end of a sentence about the recipe."""
        return f"agrees with the training: {self.photos} {self.kind}, {self.agreement}"

    @property
    def told(self) -> dict[str, Any]:
        """The values that the evidence tells from others."""
        return {name: self.values[name] for name, remark in self.remarks.items() if remark.startswith(_TELLING)}

    def to_json(self) -> dict[str, Any]:
        """Return it as it is stored in the version's `parity.json`."""
        return {
            "kind": self.kind,
            "photos": self.photos,
            "digest": self.digest,
            "distance": self.distance,
            "summary": self.summary,
        }

    def to_table(self) -> str:
        """Return the fields as aligned columns: value, and how well the evidence fixes it."""
        rows = [
            (name, _shown(self.values[name]), self.remarks[name])
            for name in (*_FOUND, *_FOLLOWING)
            if name in self.remarks
        ]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(f"{name:{widths[0]}}  {value:{widths[1]}}  {remark}" for name, value, remark in rows)


def judge(
    evidence: Evidence,
    stated: Mapping[str, Any],
    *,
    usual: Mapping[str, Any] = MappingProxyType({}),
    class_names: Sequence[str] = (),
    seconds: float = SEARCH_S,
) -> Judgement:
    """Find the values that are not stated, and check those that are.

    Args:
        evidence: the evidence from training.
        stated: values of the recipe that the user or the model states; the size may be among them.
        usual: values that are usual for such a network; the search begins with them.
        class_names: the labels in the order of the label file; without any, the network's outputs need no reading.
        seconds: the longest time that the search may take, in wall-clock time.

    Raises:
        EvidenceError: what is stated contradicts the evidence, no recipe agrees with it, or the time is over.
    """
    kind = evidence.kind
    fields = fields_of(Preprocessing)
    known = {name: stated[name] for name in fields if name in stated}
    size = evidence.size or known.get("size")
    if size is None:
        raise EvidenceError(f"the network takes photos of any size, and {kind} do not show it: pass --size")
    if known.get("size", size) != size:
        raise EvidenceError(f"the inputs have the size {size[0]}x{size[1]}, but the recipe {_shown(known['size'])}")
    begin = {**_START, **{name: usual[name] for name in fields if name in usual}}
    start = Preprocessing(**{**begin, **known, "size": size})
    search = Search(evidence, seconds)
    found = best = search.find(start, frozenset(known) | {"size"})
    if known and not evidence.is_exact(found.fit):
        best = min(found, search.find(start, frozenset({"size", *(evidence.untold & known.keys())})), key=_distance)
        if all(getattr(best.preprocessing, name) == value for name, value in known.items()):
            found = best
    order = evidence.order(best.fit)
    if order is not None:
        names = {int(unit): class_names[label] for label, unit in enumerate(order)}
        raise EvidenceError(
            f"the {kind} agree with another order of labels: {', '.join(names[unit] for unit in sorted(names))}; write "
            "the --labels in the order of the network's outputs"
        )
    search.measure(best.preprocessing)
    if not evidence.is_same(best.fit):
        raise EvidenceError(
            f"no recipe makes these {kind}: the nearest is {evidence.shown(best.fit)} away, with "
            f"{_listed(best.preprocessing, [name for name in _FOUND if name not in best.fit.follows])}; the training "
            "may do something else to photos"
        )
    _check_stated(evidence, search, stated, found, best)
    search.measure(found.preprocessing)
    _check_told(evidence, found, known)
    following = _FOLLOWING if class_names else ()
    follows = {name: found.fit.follows[name] for name in following if name in found.fit.follows and name not in stated}
    values = {name: getattr(found.preprocessing, name) for name in ("size", *_FOUND)} | follows
    remarks = {name: _remark(evidence, name, found, name in known) for name in _FOUND}
    remarks |= dict.fromkeys(follows, "found")
    return Judgement(
        kind, len(evidence.photos), evidence.digest, found.fit.distance, evidence.shown(found.fit), values, remarks
    )


def _distance(found: Found) -> float:
    return found.fit.distance


def _check_stated(evidence: Evidence, search: Search, stated: Mapping[str, Any], found: Found, best: Found) -> None:
    """Reject what is stated and would have to be something else."""
    follows = {name: value for name, value in best.fit.follows.items() if name in fields_of(Preprocessing)}
    nearest = dataclasses.replace(best.preprocessing, **follows)
    known = {name: stated[name] for name in _FOUND if name in stated}
    other = dataclasses.replace(nearest, **known)
    contradicted = [name for name in evidence.contradicted(found.fit, other) if name in known]
    if evidence.certainty(best.fit, found.fit) is Certainty.SURE or not evidence.is_same(found.fit):
        differing = [name for name in known if getattr(nearest, name) != known[name]]
        matter = [name for name in differing if _matters(evidence, search, best, name, known[name])]
        contradicted = matter or differing
    values = {name: getattr(nearest, name) for name in contradicted}
    values |= {
        name: best.fit.follows[name]
        for name in _FOLLOWING
        if name in stated and best.fit.follows.get(name, stated[name]) != stated[name]
    }
    if values:
        given = ", ".join(f"{name} {_shown(stated[name])}" for name in values)
        shown = evidence.shown(best.fit)
        how = f"within {shown}" if best.fit.losses is None else f"best ({shown})"
        options = " ".join(_option(name, value) for name, value in values.items())
        raise EvidenceError(f"the {evidence.kind} agree {how} with {options}; {given} is stated")


def _matters(evidence: Evidence, search: Search, best: Found, name: str, value: Any) -> bool:
    """Return whether the nearest recipe is farther with another value of a field."""
    try:
        changed = dataclasses.replace(best.preprocessing, **{name: value})
    except RecipeError:
        return True
    return evidence.certainty(best.fit, search.fit(changed)) is not Certainty.NOT_TOLD


def _check_told(evidence: Evidence, found: Found, known: Mapping[str, Any]) -> None:
    """Reject evidence that leaves a field open which has no default."""
    has_antialias = found.preprocessing.resize not in ("nearest", "area")
    alike = []
    for name in ("scale", "channels", "crop", "resize", *(["antialias"] if has_antialias else [])):
        alternative = found.alternatives.get(name)
        if name in known or not alternative or _certainty(evidence, name, found, alternative):
            continue
        if LETTERBOXES.get(alternative.value) and found.preprocessing.letterbox_rounding is not None:
            continue  # they differ by a pixel, in photos of few sizes
        other = dataclasses.replace(found.preprocessing, **{name: alternative.value})
        alike.append(
            f"with {_listed(found.preprocessing, [name])} and {_listed(other, [name])} alike: "
            f"{evidence.shown(found.fit)} and {evidence.shown(alternative.fit)}"
        )
    if alike:
        more = "add photos of other shapes and sizes" if found.fit.losses is None else "pass --predictions or --inputs"
        each = " of each" if len(alike) > 1 else ""
        raise EvidenceError(f"these {evidence.kind} agree {'; '.join(alike)}; state one{each}, or {more}")


def _certainty(evidence: Evidence, name: str, found: Found, alternative: Alternative) -> Certainty:
    """Return how surely another value of a field is farther from the evidence."""
    return Certainty.NOT_TOLD if name in evidence.untold else evidence.certainty(found.fit, alternative.fit)


def _remark(evidence: Evidence, name: str, found: Found, is_stated: bool) -> str:
    if name in found.fit.follows:
        return "stated, agrees" if is_stated else "found"
    alternative = found.alternatives.get(name)
    if alternative is None or alternative.fit.distance == found.fit.distance:
        is_tried = any(name in fields for fields in evidence.groups)
        return f"{'stated, ' if is_stated else ''}{'of no effect on these photos' if is_tried else 'not compared'}"
    if is_stated:
        is_told = _certainty(evidence, name, found, alternative)
        return f"stated, {'agrees' if is_told else 'not told apart by these photos'}"
    compared = f"{evidence.shown(found.fit)} against {evidence.shown(alternative.fit)} for {_shown(alternative.value)}"
    certainty = _certainty(evidence, name, found, alternative)
    return f"{('not told apart by these photos', *_TELLING[::-1])[certainty]}: {compared}"


def _listed(preprocessing: Preprocessing, names: Sequence[str]) -> str:
    values = {name: getattr(preprocessing, name) for name in names}
    return " ".join(_option(name, value) for name, value in values.items() if value is not None)


def _option(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{name}"
    return f"{Recipe.FIELDS[name].option} {_shown(value)}"


def _shown(value: Any) -> str:
    if value is None:
        return "default"
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
