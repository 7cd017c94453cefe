"""The errors of a rollout. Their texts are sentences for people."""

from __future__ import annotations


class RolloutError(Exception):
    """The rollout was refused, or a server did not do what it must; the text is the reason."""


class ConfigError(RolloutError):
    """The config file, or the model in it, is not valid for a rollout."""
