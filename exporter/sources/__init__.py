"""Model sources: what `--model` may name. A source is one module with `matches` and `read`; list it in `_SOURCES`."""

from __future__ import annotations

from typing import Protocol

from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.sources import built_in, function, hub, keras_application, keras_file, saved_model
from savedmodel_bakery.exporter.sources.network import Network, SourceOptions


class Source(Protocol):
    """A module that turns a model's name or path into a network."""

    FORM: str
    """How such a model is written on the command line, for error texts."""

    def matches(self, model: str) -> bool:
        """Whether `model` names one of this source."""
        ...

    def read(self, model: str, options: SourceOptions) -> Network:
        """Load it.

        Raises:
            SourceError: it cannot be used.
        """
        ...


_SOURCES: tuple[Source, ...] = (built_in, keras_application, hub, keras_file, saved_model, function)


def read_network(model: str, options: SourceOptions) -> Network:
    """Load the network that `model` names.

    Raises:
        SourceError: no source knows it, or the one that does can't use it.
    """
    return find_source(model).read(model, options)


def find_source(model: str) -> Source:
    """The source that `model` names one of.

    Raises:
        SourceError: no source knows it.
    """
    for source in _SOURCES:
        if source.matches(model):
            return source
    raise SourceError(f"model {model!r} is not known; allowed are {'; '.join(source.FORM for source in _SOURCES)}")


__all__ = ["Network", "Source", "SourceOptions", "find_source", "read_network"]
