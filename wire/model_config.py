"""The models of a ModelServerConfig, with tensorflow_model_server's checks and errors. Does no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from savedmodel_bakery.wire.status import invalid_argument

PLATFORM = "tensorflow"
_TENSORFLOW_TYPE = 1
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class Latest:
    """Serve the highest version numbers."""

    count: int = 1


@dataclass(frozen=True)
class All:
    """Serve every version."""


@dataclass(frozen=True)
class Specific:
    """Serve these versions if they exist."""

    versions: frozenset[int]


Policy = Latest | All | Specific


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of one model."""

    name: str
    base_path: str
    policy: Policy = Latest()
    labels: Mapping[str, int] = field(default_factory=dict)  # version numbers by label
    platform: str = PLATFORM
    model_type: int = 0  # the deprecated number for the platform; 0 if not set
    has_request_logging: bool = False  # which no open-source server does

    @property
    def folder(self) -> Path:
        """The base path as a path of this machine, unless it is a URL."""
        return Path(self.base_path.removeprefix("file://"))

    @property
    def is_url(self) -> bool:
        """Whether the base path is in a bucket, such as s3://bucket/models/flowers."""
        return _SCHEME.match(self.base_path) is not None and not self.base_path.startswith("file://")


def parse_config(message: Any) -> dict[str, ModelConfig] | None:
    """Convert a ModelServerConfig to models by name; None if it contains neither a model list nor a custom config.

    Checks that depend on the models served now are those of the server.
    """
    choice = message.WhichOneof("config")
    if choice is None:
        return None
    if choice != "model_config_list":
        raise invalid_argument("Missing custom_model_config_loader in ServerCore Options")
    models: dict[str, ModelConfig] = {}
    for config in message.model_config_list.config:
        if config.name in models:
            raise invalid_argument(f"Illegal to list model {config.name} multiple times in config list")
        models[config.name] = ModelConfig(
            config.name,
            config.base_path,
            _policy(config.model_version_policy),
            dict(config.version_labels),
            config.model_platform,
            config.model_type,
            config.HasField("logging_config"),
        )
    for config in models.values():
        check_base_path(config.name, config.base_path)
    return models


def check_base_path(name: str, base_path: str) -> None:
    """Check that the base path of a model is an absolute path or a URI."""
    if not base_path.startswith("/") and not _SCHEME.match(base_path):
        raise invalid_argument(f"Expected model {name} to have an absolute path or URI; got base_path()={base_path}")


def platform_of(config: ModelConfig) -> str:
    """Return the platform of a model, which its configuration must state in one of two ways."""
    if config.model_type and config.platform:
        raise invalid_argument(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and ModelServerConfig::model_platform, "
            f"model name is {config.name}"
        )
    if config.model_type:
        if config.model_type != _TENSORFLOW_TYPE:
            raise invalid_argument(f"ModelServerConfig::model_type choice {config.model_type} not supported.")
        return PLATFORM
    if not config.platform:
        raise invalid_argument(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            f"ModelServerConfig::model_platform, model name is {config.name}"
        )
    return config.platform


def _policy(message: Any) -> Policy:
    choice = message.WhichOneof("policy_choice")
    if choice == "all":
        return All()
    if choice == "specific":
        return Specific(frozenset(message.specific.versions))
    return Latest(max(message.latest.num_versions, 1))
