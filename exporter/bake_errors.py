"""The exporter's errors. Each message is one sentence for a terminal."""

from __future__ import annotations


class BakeError(Exception):
    """Baking failed; nothing was published.

    Args:
        message: joined to one line, because messages of other libraries that it quotes may have several.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class RecipeError(BakeError):
    """An option of the recipe is missing, contradictory or out of range."""


class LabelError(BakeError):
    """The label set can't be read, or doesn't fit the network."""


class SourceError(BakeError):
    """The model can't be loaded or used."""


class VerificationError(BakeError):
    """The SavedModel's outputs differ from the network's."""


class ParityError(BakeError):
    """The SavedModel's outputs differ from the reference pipeline's, or can't be compared."""


class PipelineError(BakeError):
    """A pipeline file is invalid, or its steps do not fit together."""


class TritonError(BakeError):
    """A SavedModel or a pipeline can't run on Triton as it is."""


class PublishError(BakeError):
    """A version can't be published or read."""
