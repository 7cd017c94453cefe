"""Models to serve, from two flags or a text ModelServerConfig, with tensorflow_model_server's checks and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from savedmodel_bakery.serving.options.text_format import read_message
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

PLATFORM = "tensorflow"
_TENSORFLOW_TYPE = 1


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
    """The configuration of one model.

    Attributes:
        name: the model's name in requests.
        base_path: the folder that contains the version folders.
        policy: which versions to serve.
        labels: version numbers by label.
        platform: the platform that runs the model.
        model_type: the deprecated number for the platform; 0 if not set.
        has_request_logging: whether requests should be logged, which no open-source server does.
    """

    name: str
    base_path: str
    policy: Policy = Latest()
    labels: Mapping[str, int] = field(default_factory=dict)
    platform: str = PLATFORM
    model_type: int = 0
    has_request_logging: bool = False

    @property
    def folder(self) -> Path:
        """The base path as a path of this machine."""
        return Path(self.base_path.removeprefix("file://"))


class UnavailableVersionError(StatusError):
    """A label names a version that is not available.

    Attributes:
        hint: how to assign the label: the status has tensorflow_model_server's text.
    """

    hint = (
        "A label can only be assigned to an available version, and no version is available when the server starts: "
        "assign it in a later reload, or set --allow_version_labels_for_unavailable_models."
    )


def single_model(name: str, base_path: str) -> dict[str, ModelConfig]:
    """Return the configuration set by `--model_name` and `--model_base_path`.

    Raises:
        StatusError: INVALID_ARGUMENT if the base path is not absolute.
    """
    _check_base_path(name, base_path)
    return {name: ModelConfig(name, base_path)}


def read_config_file(path: Path) -> dict[str, ModelConfig] | None:
    """Read a text ModelServerConfig file; see `parse_config`.

    Raises:
        StatusError: the file can't be read or parsed, or the configuration is invalid.
    """
    return parse_config(read_message(path, schema.ModelServerConfig))


def parse_config(message: Any) -> dict[str, ModelConfig] | None:
    """Convert a ModelServerConfig to models by name; None if it contains neither a model list nor a custom config.

    Checks that depend on the models served now are made by `check_models`.

    Raises:
        StatusError: INVALID_ARGUMENT with the reason.
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
        _check_base_path(config.name, config.base_path)
    return models


def check_models(
    models: Mapping[str, ModelConfig],
    current: Mapping[str, ModelConfig],
    available: Callable[[str], Collection[int]],
    *,
    labels_for_unavailable: bool,
) -> None:
    """Check whether a configuration may replace the current one, in tensorflow_model_server's order.

    Args:
        models: the new configuration, by model name.
        current: the current configuration, by model name.
        available: returns the versions of a model that are available now.
        labels_for_unavailable: whether a label may name a version that isn't available.

    Raises:
        UnavailableVersionError: FAILED_PRECONDITION for a label of an unavailable version.
        StatusError: INVALID_ARGUMENT for a platform.
    """
    for name, config in models.items():
        if name in current and (platform := _platform(config)) != PLATFORM:
            raise invalid_argument(
                f"Illegal to change a model's platform. For model {name} platform was {PLATFORM} and new platform "
                f"requested is {platform}"
            )
    for name, config in models.items():
        current_labels = current[name].labels if name in current else {}
        for label, version in config.labels.items():
            may_be_unavailable = labels_for_unavailable and current_labels.get(label, version) == version
            if version not in available(name) and not may_be_unavailable:
                raise UnavailableVersionError(
                    Code.FAILED_PRECONDITION,
                    f"Request to assign label to version {version} of model {name}, which is not currently "
                    "available for inference",
                )
    for name, config in models.items():
        if (platform := _platform(config)) != PLATFORM:
            raise invalid_argument(f"Model {name} requests unsupported platform {platform}")


def _policy(message: Any) -> Policy:
    choice = message.WhichOneof("policy_choice")
    if choice == "all":
        return All()
    if choice == "specific":
        return Specific(frozenset(message.specific.versions))
    return Latest(max(message.latest.num_versions, 1))


def _check_base_path(name: str, base_path: str) -> None:
    if not base_path.startswith("/") and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", base_path):
        raise invalid_argument(f"Expected model {name} to have an absolute path or URI; got base_path()={base_path}")


def _platform(config: ModelConfig) -> str:
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
