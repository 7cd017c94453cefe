"""Model sources: what `--model` may name. A source is a module like `Source`, listed in `_SOURCES`."""

from __future__ import annotations

from typing import Protocol

from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.sources import built_in, function, hub, keras_application, keras_file, saved_model
from savedmodel_bakery.exporter.sources.network import Network, SourceOptions


class Source(Protocol):
    """A module that loads the network that a name or path refers to."""

    FORM: str
    """How such a model is written on the command line, for error messages."""

    def matches(self, model: str) -> bool:
        """Return whether `model` has the form of this source."""
        ...

    def read(self, model: str, options: SourceOptions) -> Network:
        """Load the network.

        Raises:
            SourceError: it can't be loaded or used.
        """
        ...


_SOURCES: tuple[Source, ...] = (built_in, keras_application, hub, keras_file, saved_model, function)


def read_network(model: str, options: SourceOptions) -> Network:
    """Load the network that `model` refers to.

    Raises:
        SourceError: no source matches, or the network can't be loaded or used.
    """
    return find_source(model).read(model, options)


def find_source(model: str) -> Source:
    """Return the source whose form `model` has.

    Raises:
        SourceError: no source matches.
    """
    for source in _SOURCES:
        if source.matches(model):
            return source
    raise SourceError(f"unknown model {model!r}: allowed are {'; '.join(source.FORM for source in _SOURCES)}")


__all__ = ["Network", "Source", "SourceOptions", "find_source", "read_network"]
