"""What the kinds of evidence have in common: how they are read, and how a recipe is compared with them."""

from __future__ import annotations

import hashlib
import itertools
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import ExifTags, Image

from savedmodel_bakery.errors import EvidenceError
from savedmodel_bakery.exporter.recipe import SCALES, Preprocessing, describe_scale
from savedmodel_bakery.exporter.sources.user_model import FUNCTION_NAME, import_callable
from savedmodel_bakery.exporter.validation import reference

_MAX_PHOTOS, _MAX_PIXELS = 8, 6_000_000
"""Of the photos that are compared; more tell nothing new, and each recipe that is tried resizes them."""

_ENOUGH = 200_000  # pixels of a photo

SAME = 0.7
"""Levels: rounding of pixels is a distance of 0.3, and of rows and columns 0.4; what is farther is another recipe."""

# Levels by which another recipe must be farther, to be told apart, and to be surely another.
_TOLD, _SURE = 0.05, 0.1
EXACT = 0.02
"""Levels: only the order of additions differs."""

WHITES = (2**10 - 1, 2**12 - 1, 2**14 - 1, 2**16 - 1)
"""Levels that are white in photos of 16 bits per colour, from cameras of fewer bits."""

Groups = Mapping[tuple[str, ...], Callable[[Preprocessing], Iterator[dict[str, Any]]]]
"""Fields of the recipe that are changed together, and the values to try for a recipe."""


Source: TypeAlias = "str | PathLike[str] | Mapping[str, Any] | Callable[[str], Any]"
"""Where evidence is: a file; a mapping by the names of photos; or a function of a path, or `module:function`."""


class Fit(NamedTuple):
    """How a recipe compares with evidence.

    Attributes:
        distance: how far the recipe is from the evidence, in the unit of the evidence.
        follows: values of fields that the evidence itself shows, given the pixels of the recipe.
        line: mean and standard deviation of R, G, B with which the pixels come nearest, if it shows them.
        losses: float64 [photos], if the distance is their mean.
    """

    distance: float
    follows: Mapping[str, Any] = MappingProxyType({})
    line: tuple[Sequence[float], Sequence[float]] | None = None
    losses: np.ndarray | None = None

    @classmethod
    def of_losses(cls, losses: np.ndarray, follows: Mapping[str, Any]) -> Fit:
        """Return the fit whose distance is a mean of losses."""
        return cls(float(losses.mean()), follows, losses=losses)


class Certainty(IntEnum):
    """How surely a recipe is another one than the nearest."""

    NOT_TOLD, LIKELY, SURE = range(3)


class Evidence(ABC):
    """What training shows for some photos. What a kind of evidence does not tell is left as it is here.

    Attributes:
        kind: the name of the kind of evidence, in the plural, such as `inputs`.
        photos: the files of the photos.
        digest: the SHA-256 of the evidence.
        size: height and width of the network's input, if the evidence shows them.
        groups: the groups of fields that are tried together, each with the values to try.
        untold: those of these fields that the evidence does not judge, however far their values are.
        noise: the largest difference of two distances that means nothing.
    """

    kind: str
    photos: Sequence[Path]
    digest: str
    size: tuple[int, int] | None = None
    groups: Groups
    untold: frozenset[str] = frozenset()
    noise: float

    @cached_property
    def white(self) -> int | None:
        """The lowest usual white that no photo exceeds; None if none of them has 16 bits per colour."""
        levels = [level for photo in self.photos if (level := reference.highest_level(photo)) is not None]
        return min(white for white in WHITES if white >= max(levels)) if levels else None

    @abstractmethod
    def fit(self, pixels: np.ndarray, candidate: Preprocessing) -> Fit:
        """Compare the pixels [photos, height, width, 3] that a recipe makes of the photos."""

    def measure(self, pixels: np.ndarray, nearest: Preprocessing) -> None:  # noqa: B027
        """Prepare `is_same` and `certainty` at the nearest recipe."""

    def refine(self, pixels: np.ndarray, nearest: Preprocessing, check_time: Callable[[], None]) -> dict[str, Any]:  # noqa: ARG002
        """Return values that no list has and that come nearer; empty if there are none."""
        return {}

    def order(self, best: Fit) -> np.ndarray | None:  # noqa: ARG002
        """Return the output of each label, if the answers agree far better with another order of labels."""
        return None

    @abstractmethod
    def is_same(self, fit: Fit) -> bool:
        """Return whether a recipe agrees with the evidence."""

    @abstractmethod
    def is_exact(self, fit: Fit) -> bool:
        """Return whether no recipe can agree better."""

    def ends_search(self, fit: Fit) -> bool:
        """Return whether a recipe is so near that the search need not begin elsewhere too."""
        return self.is_exact(fit)

    @abstractmethod
    def certainty(self, best: Fit, other: Fit) -> Certainty:
        """Return how surely a recipe is farther from the evidence than the nearest one."""

    def contradicted(self, fit: Fit, stated: Preprocessing) -> list[str]:  # noqa: ARG002
        """Return the fields of a recipe that are not what follows from the evidence."""
        return []

    @abstractmethod
    def shown(self, fit: Fit) -> str:
        """Return the distance with its unit."""


def farther(best: float, other: float, level: float) -> Certainty:
    """Return how surely a distance is not that of the nearest recipe; `level` is what one level of pixels changes."""
    difference = (other - best) / level
    if difference < _TOLD:
        return Certainty.NOT_TOLD
    return Certainty.SURE if difference > max(_SURE, best / level / 3) else Certainty.LIKELY


def one_of(field: str, *values: Any) -> Callable[[Preprocessing], Iterator[dict[str, Any]]]:
    """Return the values of one field as those of a group."""
    return lambda _current: iter([{field: value} for value in values])


def combinations(**fields: Sequence[Any]) -> Callable[[Preprocessing], Iterator[dict[str, Any]]]:
    """Return all combinations of the values of some fields as those of a group."""
    return lambda _current: (dict(zip(fields, values, strict=True)) for values in itertools.product(*fields.values()))


def read_by_photo(
    source: Source, photos: Sequence[Path], kind: str, read_file: Callable[[Path], Mapping[str, Any]]
) -> dict[Path, Any]:
    """Read the evidence for photos from a file or a mapping by their names, or from a function of a photo's path.

    A function is called only for photos that are compared.

    Raises:
        EvidenceError: the evidence can't be read, or a name is not that of one of the photos.
        SourceError: the function can't be imported.
    """
    title = title_of(source)
    if isinstance(source, str) and FUNCTION_NAME.fullmatch(source) is not None and not Path(source).is_file():
        source = import_callable(source)
    if callable(source):
        return _call(source, title, choose(photos))
    if isinstance(source, Mapping):
        other = next((name for name in source if not isinstance(name, str | PathLike)), None)
        if other is not None:
            raise EvidenceError(f"{title} has the key {other!r}: must be the names of the photos' files")
        named: Mapping[str, Any] = {fspath(name): value for name, value in source.items()}
    elif isinstance(source, str | PathLike):
        named = _read(Path(source), kind, read_file)
    else:
        raise EvidenceError(f"{title} has no names of photos: {kind} must be a file, a dict by name or a function")
    found = by_photo(named, photos, f"{title} has {kind}")
    if not found:
        raise EvidenceError(f"{title} has no {kind}")
    return found


def title_of(source: Source) -> str:
    """Return what messages call the source of evidence."""
    if callable(source):
        return str(getattr(source, "__qualname__", type(source).__name__))
    return fspath(source) if isinstance(source, str | PathLike) else f"the {type(source).__name__}"


def _read(path: Path, kind: str, read_file: Callable[[Path], Mapping[str, Any]]) -> Mapping[str, Any]:
    if not path.is_file():
        raise EvidenceError(f"no file or function with {kind}: {path}")
    try:
        return read_file(path)
    except Exception as error:  # csv, zipfile and numpy raise many kinds for damaged files
        raise EvidenceError(f"cannot read the {kind} in {path}: {error}") from error


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an `.npz` file; raises any exception if it is damaged."""
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an .npz file, as numpy.savez writes it")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays}


def unique(pairs: Iterable[tuple[Hashable, Any]]) -> dict[Any, Any]:
    """Return the values by their names; raises ValueError if a name has two different values."""
    values: dict[Any, Any] = {}
    for name, value in pairs:
        first = values.setdefault(name, value)
        if first is not value and not np.array_equal(first, value):
            raise ValueError(f"two different values for {name}: must have one")
    return values


def by_photo(named: Mapping[str, Any], photos: Sequence[Path], described: str) -> dict[Path, Any]:
    """Find the photos of names, which may leave out folders; raises EvidenceError unless each is that of one photo."""
    by_name: dict[PurePath, list[Path]] = {}
    for photo in dict.fromkeys(photos):
        parts = photo.absolute().parts
        for start in range(len(parts)):
            by_name.setdefault(PurePath(*parts[start:]), []).append(photo)
    for name in named:
        matches = by_name.get(PurePath(name), [])
        if len(matches) > 1:
            raise EvidenceError(
                f"{described} for {name!r}, but {len(matches)} photos have that name: must be a longer path, "
                "with folders"
            )
        if not matches:
            raise EvidenceError(
                f"{described} for {len(named)} photos, but {name!r} is not the name of one of the {len(photos)} "
                "photos; the names must be those of files, relative to the folder of --photos"
            )
    try:
        return unique((by_name[PurePath(name)][0], value) for name, value in named.items())
    except ValueError as error:
        raise EvidenceError(f"{described}, but {error}") from error


def choose(
    photos: Sequence[Path],
    kind_of: Callable[[Path], Hashable] | None = None,
    *,
    worth: Callable[[Path], float] = lambda _: 1.0,
    most: int = _MAX_PHOTOS,
    most_pixels: int = _MAX_PIXELS,
) -> list[Path]:
    """Return the photos that are compared, at least one: of each kind in turn the smallest for its worth that is left.

    Those that are hardly larger than a network's input come last: they do not show how photos are made smaller.

    Kinds are formats, colours, orientations and shapes, or what `kind_of` returns. Raises ParityError if a photo can't
    be read.
    """
    pixels, kinds = {}, {}
    for photo in photos:
        with reference.reading(photo), Image.open(photo) as picture:
            pixels[photo] = picture.width * picture.height
            is_turned = picture.getexif().get(ExifTags.Base.Orientation, 1) != 1
            kinds[photo] = (
                kind_of(photo) if kind_of else (picture.format, picture.mode, is_turned, _shape(picture.size))
            )
    ranks: Counter[Hashable] = Counter()
    order = {}
    costs = {photo: (max(size, _ENOUGH) / worth(photo), -size, photo) for photo, size in pixels.items()}
    for photo in sorted(costs, key=lambda photo: costs[photo]):
        order[photo] = ranks[kinds[photo]], costs[photo]
        ranks[kinds[photo]] += 1
    chosen: list[Path] = []
    for photo in sorted(order, key=lambda photo: order[photo]):
        if not chosen or (len(chosen) < most and sum(pixels[each] for each in chosen) + pixels[photo] <= most_pixels):
            chosen.append(photo)
    return chosen


def _shape(size: tuple[int, int]) -> int:
    """Return whether a photo is upright, square or wide."""
    width, height = size
    return (width > height) - (width < height)


def digest_of(photos: Sequence[Path], array: np.ndarray) -> str:
    """Return the SHA-256 of what evidence says for photos, with their names."""
    return hashlib.sha256("\n".join(photo.name for photo in photos).encode() + array.tobytes()).hexdigest()


def describe_line(mean: Sequence[float], std: Sequence[float]) -> str:
    """Return the scale with this mean and standard deviation, by its name if it makes the same of pixels."""
    for name, known in SCALES.items():
        if levels_off(mean, std, *known) < SAME:
            return name
    return describe_scale([round(number, 2) for number in mean], [float(f"{number:.4g}") for number in std])


def levels_off(
    mean: Sequence[float], std: Sequence[float], other_mean: Sequence[float], other_std: Sequence[float]
) -> float:
    """Return by how many levels a pixel seems to differ, at most, if it is scaled by the other mean and deviation."""
    return max(
        abs((level - one) / one_std - (level - other) / another_std) * another_std
        for one, one_std, other, another_std in zip(mean, std, other_mean, other_std, strict=True)
        for level in (0, 255)
    )


def _call(function: Callable[[str], Any], title: str, photos: Sequence[Path]) -> dict[Path, Any]:
    found = {}
    for path in photos:
        try:
            found[path] = function(str(path))
        except (Exception, SystemExit) as error:  # user code can raise anything
            raise EvidenceError(f"{title} failed with {type(error).__name__} for {path}: {error}") from error
    return found
