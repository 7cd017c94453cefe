"""Settings: what the flags ask for, checked before anything heavy is imported or loaded."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from savedmodel_bakery.serving.grpc.credentials import Tls, read_tls
from savedmodel_bakery.serving.options import (
    batching as batching_parameters,
)
from savedmodel_bakery.serving.options import (
    model_config as configuration,
)
from savedmodel_bakery.serving.options import (
    text_format as text_files,
)
from savedmodel_bakery.serving.options.batching import BatchingParameters
from savedmodel_bakery.serving.options.flags import CommandLine
from savedmodel_bakery.serving.options.model_config import ModelConfig
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import invalid_argument

logger = logging.getLogger(__name__)

_DEFAULT_METRICS_PATH = "/monitoring/prometheus/metrics"

_RANGES = {
    ("port", "rest_api_port"): 65535,
    ("grpc_max_threads", "num_tflite_pools", "rest_api_num_threads"): 2**16,
    ("tensorflow_session_parallelism", "tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism"): 2**16,
}


def check_flags(flags: CommandLine) -> None:
    """Refuse flags that contradict each other.

    Raises:
        StatusError: INVALID_ARGUMENT in tensorflow_model_server's words.
    """
    if not flags.integer("port") and not flags.text("grpc_socket_path"):
        raise invalid_argument(
            "At least one of server_options.grpc_port or server_options.grpc_socket_path must be set."
        )
    for names, most in _RANGES.items():
        for name in names:
            if not 0 <= flags.integer(name) <= most:
                raise invalid_argument(f"{name} is {flags.integer(name)}; allowed are 0 to {most}")
    if not flags.text("model_base_path") and not flags.text("model_config_file"):
        raise invalid_argument("Both server_options.model_base_path and server_options.model_config_file are empty!")
    if flags.text("batching_parameters_file") and not flags.on("enable_batching"):
        raise invalid_argument(
            "server_options.batching_parameters_file is set without setting server_options.enable_batching to true."
        )
    if flags.on("use_alts_credentials") and flags.text("ssl_config_file"):
        raise invalid_argument("Either use_alts_credentials must be false or ssl_config_file must be empty.")
    parallelism = [flags.integer(f"tensorflow_{kind}_parallelism") for kind in ("session", "intra_op", "inter_op")]
    if all(threads > 0 for threads in parallelism):
        raise invalid_argument(
            "Either configure server_options.tensorflow_session_parallelism or "
            "(server_options.tensorflow_intra_op_parallelism, server_options.tensorflow_inter_op_parallelism) "
            "separately. You cannot configure all."
        )


@dataclass(frozen=True)
class Settings:
    """What the files that flags name hold.

    Attributes:
        models: by name; None where the config file is of no kind.
        batching: parameters; None where requests aren't joined.
        tls: of gRPC; None is plain text.
        metrics_path: where REST shows metrics; None is nowhere.
        session: a ConfigProto: how TensorFlow runs graphs.
    """

    models: dict[str, ModelConfig] | None
    batching: BatchingParameters | None
    tls: Tls | None
    metrics_path: str | None
    session: Any


def read(flags: CommandLine) -> Settings:
    """Read every file.

    Raises:
        StatusError: one is missing, doesn't parse, or asks for what is refused.
    """
    models = read_models(flags)
    allowed = flags.on("allow_version_labels_for_unavailable_models")
    configuration.check(models or {}, {}, lambda _: (), labels_for_unavailable=allowed)
    return Settings(
        models=models,
        batching=_read_batching(flags),
        tls=read_tls(Path(flags.text("ssl_config_file"))) if flags.text("ssl_config_file") else None,
        metrics_path=_read_metrics_path(flags),
        session=_read_session(flags),
    )


def read_models(flags: CommandLine) -> dict[str, ModelConfig] | None:
    """Models by name, from the config file, or from the two flags where there is none; None where it is of no kind.

    Raises:
        StatusError: the file is missing, doesn't parse, or asks for what is refused.
    """
    if flags.text("model_config_file"):
        return configuration.read_config_file(Path(flags.text("model_config_file")))
    return configuration.single_model(flags.text("model_name"), flags.text("model_base_path"))


def _read_batching(flags: CommandLine) -> BatchingParameters | None:
    if not flags.on("enable_batching"):
        return None
    path = flags.text("batching_parameters_file")
    return batching_parameters.read(Path(path)) if path else BatchingParameters()


def _read_metrics_path(flags: CommandLine) -> str | None:
    if not flags.text("monitoring_config_file") or not flags.integer("rest_api_port"):
        return None
    message = text_files.read(Path(flags.text("monitoring_config_file")), schema.MonitoringConfig)
    return (message.prometheus_config.path or _DEFAULT_METRICS_PATH) if message.prometheus_config.enable else None


def _read_session(flags: CommandLine) -> Any:
    """The file's ConfigProto with the flags' values written over it, given or not, as tensorflow_model_server does."""
    path = flags.text("tensorflow_session_config_file")
    config = text_files.read(Path(path), schema.ConfigProto) if path else schema.ConfigProto()
    both = flags.integer("tensorflow_session_parallelism")
    config.intra_op_parallelism_threads = both or flags.integer("tensorflow_intra_op_parallelism")
    config.inter_op_parallelism_threads = both or flags.integer("tensorflow_inter_op_parallelism")
    config.gpu_options.per_process_gpu_memory_fraction = flags.fraction("per_process_gpu_memory_fraction")
    config.allow_soft_placement = True
    precision = flags.text("mixed_precision")
    if precision == "bfloat16":
        config.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16 = schema.RewriterConfig.ON
    elif precision:
        logger.warning("mixed_precision is %s, which has no effect; bfloat16 is what there is", precision)
    return config
