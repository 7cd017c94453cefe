"""Which models to serve: from two flags or from a text ModelServerConfig, checked as tensorflow_model_server does."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from savedmodel_bakery.serving.options import text_format as text_files
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
    """Serve these versions, as far as they exist."""

    versions: frozenset[int]


Policy = Latest | All | Specific


@dataclass(frozen=True)
class ModelConfig:
    """One model.

    Attributes:
        name: in requests.
        base_path: the folder of its versions.
        policy: which of them to serve.
        labels: of versions.
        platform: what is to run it.
        kind: the deprecated number that says the same; 0 is none.
        is_logged: whether its requests are to be logged, which no open-source server does.
    """

    name: str
    base_path: str
    policy: Policy = Latest()
    labels: Mapping[str, int] = field(default_factory=dict)
    platform: str = PLATFORM
    kind: int = 0
    is_logged: bool = False


def single_model(name: str, base_path: str) -> dict[str, ModelConfig]:
    """The configuration that `--model_name` and `--model_base_path` make.

    Raises:
        StatusError: INVALID_ARGUMENT for a base path that is not absolute.
    """
    _check_base_path(name, base_path)
    return {name: ModelConfig(name, base_path)}


def read_config_file(path: Path) -> dict[str, ModelConfig] | None:
    """As `read_config`, from a text ModelServerConfig.

    Raises:
        StatusError: the file is missing, empty or no text protobuf, or asks for what is refused.
    """
    return read_config(text_files.read(path, schema.ModelServerConfig))


def read_config(message: Any) -> dict[str, ModelConfig] | None:
    """Models by name, from a ModelServerConfig, as far as they can be judged alone; None where it has no kind.

    Raises:
        StatusError: INVALID_ARGUMENT with the reason.
    """
    kind = message.WhichOneof("config")
    if kind is None:
        return None
    if kind != "model_config_list":
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


def check(
    models: Mapping[str, ModelConfig],
    current: Mapping[str, ModelConfig],
    available: Callable[[str], Collection[int]],
    *,
    labels_for_unavailable: bool,
) -> None:
    """Refuse what can't follow what is in force, in tensorflow_model_server's order.

    Args:
        models: by name.
        current: those in force.
        available: versions of a model that answer now.
        labels_for_unavailable: whether a label may name another version.

    Raises:
        StatusError: FAILED_PRECONDITION for such a label; INVALID_ARGUMENT for a platform.
    """
    for name, config in models.items():
        if name in current and (platform := _platform(config)) != PLATFORM:
            raise invalid_argument(
                f"Illegal to change a model's platform. For model {name} platform was {PLATFORM} and new platform "
                f"requested is {platform}"
            )
    for name, config in models.items():
        in_use = current[name].labels if name in current else {}
        for label, version in config.labels.items():
            may_be_away = labels_for_unavailable and in_use.get(label, version) == version
            if version not in available(name) and not may_be_away:
                raise StatusError(
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
    if config.kind and config.platform:
        raise invalid_argument(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and ModelServerConfig::model_platform, "
            f"model name is {config.name}"
        )
    if config.kind:
        if config.kind != _TENSORFLOW_TYPE:
            raise invalid_argument(f"ModelServerConfig::model_type choice {config.kind} not supported.")
        return PLATFORM
    if not config.platform:
        raise invalid_argument(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            f"ModelServerConfig::model_platform, model name is {config.name}"
        )
    return config.platform
