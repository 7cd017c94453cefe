"""Models to serve, from two flags or a text ModelServerConfig, with tensorflow_model_server's checks and errors.

Model roots are the folders that models may be loaded from, set by `--allowed_model_roots`; without any, every path is
allowed. They are absolute paths, may be symbolic links, and need not exist yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from savedmodel_bakery.serving.options.text_format import read_message
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.model_config import PLATFORM, ModelConfig, check_base_path, parse_config, platform_of
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument


class UnavailableVersionError(StatusError):
    """A label names a version that is not available; tensorflow_model_server's text does not say what to do."""

    hint = (
        "A label can only be assigned to an available version, and no version is available when the server starts: "
        "assign it in a later reload, or set --allow_version_labels_for_unavailable_models."
    )


def single_model(name: str, base_path: str) -> dict[str, ModelConfig]:
    """Return the configuration set by `--model_name` and `--model_base_path`, which must be absolute."""
    check_base_path(name, base_path)
    return {name: ModelConfig(name, base_path)}


def read_config_file(path: Path) -> dict[str, ModelConfig] | None:
    """Read a text ModelServerConfig file; see `parse_config`."""
    return parse_config(read_message(path, schema.ModelServerConfig))


def check_models(
    models: Mapping[str, ModelConfig],
    current: Mapping[str, ModelConfig],
    available: Callable[[str], Collection[int]],
    *,
    labels_for_unavailable: bool,
) -> None:
    """Check whether a configuration may replace the current one, in tensorflow_model_server's order."""
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


class OutsideRootsError(StatusError):
    """A path leads out of the allowed folders; loading from it is not retried."""


def parse_model_roots(text: str) -> tuple[Path, ...]:
    """Parse comma-separated absolute folders; an empty text allows every path."""
    roots = tuple(map(Path, text.split(","))) if text else ()
    for root in roots:
        if not root.is_absolute():
            raise invalid_argument(f"invalid allowed_model_roots {text}: each folder must be an absolute path")
    return roots


def check_base_paths(models: Mapping[str, ModelConfig], roots: Sequence[Path]) -> None:
    """Check the base paths of a configuration; see `check_path`."""
    for name, config in models.items():
        check_path(config.folder, roots, f"base path of model {name}")


def check_path(path: Path, roots: Sequence[Path], title: str) -> None:
    """Check that a path, which need not exist, is below an allowed folder once its symbolic links are resolved."""
    if not roots:
        return
    try:
        target = Path(os.path.realpath(path))
    except ValueError:  # a NUL character: such a path can't exist
        return
    if any(target.is_relative_to(os.path.realpath(root)) for root in roots):
        return
    link = "" if target == path else f" leads to {target}, which"
    allowed = ", ".join(map(str, roots))
    raise OutsideRootsError(
        Code.PERMISSION_DENIED,
        f"{title}: {path}{link} is not below an allowed folder: {allowed} (--allowed_model_roots)",
    )
