"""Models to serve, from two flags or a text ModelServerConfig, with tensorflow_model_server's checks and errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from savedmodel_bakery.serving.options.text_format import read_message
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.model_config import PLATFORM, ModelConfig, check_base_path, parse_config, platform_of
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument


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
    check_base_path(name, base_path)
    return {name: ModelConfig(name, base_path)}


def read_config_file(path: Path) -> dict[str, ModelConfig] | None:
    """Read a text ModelServerConfig file; see `parse_config`.

    Raises:
        StatusError: the file can't be read or parsed, or the configuration is invalid.
    """
    return parse_config(read_message(path, schema.ModelServerConfig))


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
        if name in current and (platform := platform_of(config)) != PLATFORM:
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
        if (platform := platform_of(config)) != PLATFORM:
            raise invalid_argument(f"Model {name} requests unsupported platform {platform}")
