"""Compares evidence with what is stated, and completes the recipe by what it shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from savedmodel_bakery.errors import EvidenceError
from savedmodel_bakery.exporter.evidence.inputs import Inputs
from savedmodel_bakery.exporter.evidence.search import SAME, Found, Search
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.recipe.fields import fields_of

SEARCH_S = 120.0
# Levels by which the next recipe must be farther, to be told apart, and to be surely another.
_TOLD, _SURE = 0.05, 0.1
_START = {"crop": "none", "resize": "bilinear", "antialias": False, "scale": "0..255", "channels": "RGB"}
_FOUND = ("crop", "crop_margin", "resize", "antialias", "orientation", "jpeg_dct", "alpha", "scale", "channels")


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What evidence says of a recipe.

    Attributes:
        photos: number of photos.
        digest: of the evidence, SHA-256.
        distance: between the recipe's inputs and those of training, root mean square in levels of 0..255.
        values: of the recipe's fields, stated or found.
        remarks: by field, how well the evidence fixes it.
    """

    photos: int
    digest: str
    distance: float
    values: Mapping[str, Any]
    remarks: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return it as it is stored in the version's `parity.json`."""
        return {"kind": "inputs", "photos": self.photos, "digest": self.digest, "distance": self.distance}

    def to_table(self) -> str:
        """Return the fields as aligned columns: value, and how well the evidence fixes it."""
        rows = [(name, _shown(self.values[name]), self.remarks[name]) for name in _FOUND if name in self.remarks]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(f"{name:{widths[0]}}  {value:{widths[1]}}  {remark}" for name, value, remark in rows)


def judge(inputs: Inputs, stated: Mapping[str, Any], *, seconds: float = SEARCH_S) -> Judgement:
    """Find the values that are not stated, and check those that are.

    Args:
        inputs: what the network received in training.
        stated: values of the recipe that the user or the model states; the size may be among them.
        seconds: how long the search may take.

    Raises:
        EvidenceError: what is stated contradicts the evidence, no recipe agrees with it, or the time is over.
    """
    known = {name: stated[name] for name in fields_of(Preprocessing) if name in stated}
    size = inputs.arrays.shape[1:3]
    if known.get("size", size) != size:
        raise EvidenceError(f"the inputs have the size {size[0]}x{size[1]}, but the recipe {_shown(known['size'])}")
    start = Preprocessing(**{**_START, **known, "size": size})
    search = Search(inputs, seconds)
    found = search.find(start, frozenset(known) | {"size"})
    best = search.find(found.preprocessing, frozenset({"size"})) if known else found
    if best.distance > SAME:
        raise EvidenceError(
            f"no recipe makes these inputs: the nearest is {best.distance:.1f} levels away, with "
            f"{_listed(best.preprocessing, _FOUND[:7])}; the training may do something else to photos"
        )
    contradicted = [name for name in known if name in _line_differs(found, start)]
    if found.distance > best.distance + max(_TOLD, best.distance / 2):
        contradicted = [name for name in _FOUND if name in known and getattr(best.preprocessing, name) != known[name]]
    if contradicted:
        given = ", ".join(f"{name} {_shown(known[name])}" for name in contradicted)
        nearest = dataclasses.replace(best.preprocessing, **best.line())
        raise EvidenceError(
            f"the inputs agree within {best.distance:.2f} levels with {_listed(nearest, contradicted)}; {given} is "
            "stated"
        )
    _check_told(found, known)
    remarks = {name: _remark(name, found, name in known) for name in _FOUND}
    values = {name: getattr(found.preprocessing, name) for name in ("size", *_FOUND)}
    return Judgement(len(inputs.photos), inputs.digest, found.distance, values, remarks)


def _check_told(found: Found, known: Mapping[str, Any]) -> None:
    """Reject evidence that leaves a field open which has no default."""
    has_antialias = found.preprocessing.resize not in ("nearest", "area")
    for name in ("crop", "resize", *(["antialias"] if has_antialias else [])):
        alternative = found.alternatives.get(name)
        if name not in known and alternative and alternative.distance - found.distance < _TOLD:
            other = dataclasses.replace(found.preprocessing, **{name: alternative.value})
            raise EvidenceError(
                f"these photos do not tell {_listed(found.preprocessing, [name])} from {_listed(other, [name])}: "
                f"{found.distance:.2f} and {alternative.distance:.2f} levels; state it, or add photos of other shapes "
                "and sizes"
            )


def _line_differs(found: Found, stated: Preprocessing) -> list[str]:
    """Return which of scale and channels are not those of the line from pixels to inputs."""
    differs = {"channels": found.fit.channels != stated.channels, "scale": not found.agrees_with(stated)}
    return [name for name, value in differs.items() if value]


def _remark(name: str, found: Found, is_stated: bool) -> str:
    if is_stated:
        return "stated, agrees"
    if name in ("scale", "channels"):
        return "found"
    alternative = found.alternatives.get(name)
    if alternative is None:
        return "of no effect here"
    text = f"{found.distance:.2f} levels against {alternative.distance:.2f} for {_shown(alternative.value)}"
    farther = alternative.distance - found.distance
    if farther < _TOLD:
        return f"not told apart by these photos: {text}"
    return f"{'found' if farther > max(_SURE, found.distance / 3) else 'likely'}: {text}"


def _listed(preprocessing: Preprocessing, names: tuple[str, ...] | list[str]) -> str:
    fields = fields_of(Preprocessing)
    return " ".join(
        f"--{'' if getattr(preprocessing, name) else 'no-'}{name}"
        if isinstance(getattr(preprocessing, name), bool)
        else f"{fields[name].option} {_shown(getattr(preprocessing, name))}"
        for name in names
        if getattr(preprocessing, name) is not None
    )


def _shown(value: Any) -> str:
    if value is None:
        return "default"
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
