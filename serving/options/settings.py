"""The server's settings, read from the flags and the files they name before TensorFlow is imported."""

from __future__ import annotations

import logging
import re
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from savedmodel_bakery.serving.access.access import Access, is_loopback
from savedmodel_bakery.serving.access.tokens import TokensError
from savedmodel_bakery.serving.options import config_files
from savedmodel_bakery.serving.options.config_files import BatchingParameters
from savedmodel_bakery.serving.options.flags import CommandLine
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import StatusError, invalid_argument

logger = logging.getLogger(__name__)

_DEFAULT_METRICS_PATH = "/monitoring/prometheus/metrics"

_ROUTES = ("health_route", "predict_route")
_ROUTE = re.compile(r"/[\w.~:/-]+", re.ASCII)
_MAX_INT32 = 2**31 - 1
_RANGES = {
    ("port", "rest_api_port"): (0, 65535),
    ("grpc_max_threads", "num_tflite_pools", "rest_api_num_threads"): (0, 2**16),
    ("tensorflow_session_parallelism",): (0, 2**16),
    ("tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism"): (0, 2**16),
    ("max_waiting_calls",): (0, _MAX_INT32),
    ("max_connections", "max_rows_per_request"): (1, _MAX_INT32),
    ("max_message_bytes", "max_unpacked_bytes", "max_header_bytes"): (1, _MAX_INT32),
    ("header_timeout_seconds", "body_timeout_seconds"): (1, _MAX_INT32 // 1000),  # for gRPC, in milliseconds
    ("memory_budget_bytes",): (0, 2**63 - 1),
    ("stage_sample_interval",): (0, _MAX_INT32),
}


@dataclass(frozen=True)
class Tls:
    """Keys and certificates, in PEM format; their content is not validated here."""

    key: str = field(repr=False)  # the server's private key
    certificate: str  # the server's certificate, followed by the chain up to its authority
    client_authority: str  # certificates of the authorities that sign client certificates; may be empty
    verify_clients: bool  # whether clients must present a certificate


def read_tls(path: Path) -> Tls:
    """Read a text SSLConfig file."""
    message = config_files.read_message(path, schema.SSLConfig, has_secrets=True)
    if message.client_verify and not message.custom_ca:
        raise invalid_argument(f"{path}: client_verify needs custom_ca, the authority that signs clients' certificates")
    missing = [name for name in ("server_key", "server_cert") if not getattr(message, name)]
    if missing:
        raise invalid_argument(f"{path}: {' and '.join(missing)} missing, in PEM format")
    return Tls(message.server_key, message.server_cert, message.custom_ca, message.client_verify)


def read_ssl_context(path: Path) -> ssl.SSLContext:
    """Read a text SSLConfig file as the context of an HTTP server, for TLS 1.2 and later."""
    tls = read_tls(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # `ssl` reads files only; it is this user's
            file.write(f"{tls.key}\n{tls.certificate}\n")
            file.flush()
            context.load_cert_chain(file.name, password="")  # an encrypted key is an error; do not prompt
        if tls.verify_clients:
            context.load_verify_locations(cadata=tls.client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not valid PEM"
        raise invalid_argument(f"{path}: cannot use the key or a certificate: {reason}") from error
    return context


def check_flags(flags: CommandLine) -> None:
    """Reject flags that are out of range or contradict each other, in tensorflow_model_server's words."""
    if not flags.integer("port") and not flags.text("grpc_socket_path"):
        raise invalid_argument(
            "At least one of server_options.grpc_port or server_options.grpc_socket_path must be set."
        )
    for names, (minimum, maximum) in _RANGES.items():
        for name in names:
            if not minimum <= flags.integer(name) <= maximum:
                raise invalid_argument(f"invalid {name} {flags.integer(name)}: must be between {minimum} and {maximum}")
    if not flags.text("model_base_path") and not flags.text("model_config_file"):
        raise invalid_argument("Both server_options.model_base_path and server_options.model_config_file are empty!")
    if flags.text("batching_parameters_file") and not flags.on("enable_batching"):
        raise invalid_argument(
            "server_options.batching_parameters_file is set without setting server_options.enable_batching to true."
        )
    if flags.on("use_alts_credentials") and flags.text("ssl_config_file"):
        raise invalid_argument("Either use_alts_credentials must be false or ssl_config_file must be empty.")
    if flags.text("ssl_config_file") and _serves_plaintext_rest(flags) and not flags.on("allow_plaintext_rest"):
        raise invalid_argument(
            "gRPC has TLS (--ssl_config_file), but REST would have none; set --rest_ssl_config_file, "
            "--rest_api_port=0, or --allow_plaintext_rest"
        )
    if flags.on("enable_playground") and not flags.integer("rest_api_port"):
        raise invalid_argument("--enable_playground needs the REST port: set --rest_api_port")
    _check_routes(flags)
    if flags.on("access_log_json") and not flags.on("access_log"):
        raise invalid_argument("--access_log_json needs --access_log")
    if flags.integer("stage_sample_interval") and not flags.text("monitoring_config_file"):
        raise invalid_argument("--stage_sample_interval needs the metrics page: set --monitoring_config_file")
    parallelism = [flags.integer(f"tensorflow_{scope}_parallelism") for scope in ("session", "intra_op", "inter_op")]
    if all(threads > 0 for threads in parallelism):
        raise invalid_argument(
            "Either configure server_options.tensorflow_session_parallelism or "
            "(server_options.tensorflow_intra_op_parallelism, server_options.tensorflow_inter_op_parallelism) "
            "separately. You cannot configure all."
        )


def _check_routes(flags: CommandLine) -> None:
    routes = {name: flags.text(name) for name in _ROUTES if flags.text(name)}
    for name, route in routes.items():
        if not _ROUTE.fullmatch(route):
            raise invalid_argument(f"invalid {name} {route}: must be a path such as /ping, without a query")
        if not flags.integer("rest_api_port"):
            raise invalid_argument(f"--{name} needs the REST port: set --rest_api_port")
    if len(set(routes.values())) < len(routes):
        raise invalid_argument(
            f"health_route and predict_route are both {flags.text('health_route')}: choose two different paths"
        )


def warn_if_exposed(flags: CommandLine) -> None:
    """Log one warning if other machines can call the server without TLS or without a token."""
    address = flags.text("bind_address")
    if is_loopback(address) or not (flags.integer("port") or flags.integer("rest_api_port")):
        return
    missing = []
    if flags.integer("port") and not flags.text("ssl_config_file"):
        missing.append("gRPC has no TLS (--ssl_config_file)")
    if _serves_plaintext_rest(flags):
        missing.append("REST has no TLS (--rest_ssl_config_file)")
    if not flags.text("auth_tokens_file"):
        missing.append("callers need no token (--auth_tokens_file)")
    if missing:
        logger.warning("The server accepts connections from other machines at %s: %s", address, "; ".join(missing))


def _serves_plaintext_rest(flags: CommandLine) -> bool:
    return flags.integer("rest_api_port") != 0 and not flags.text("rest_ssl_config_file")


@dataclass(frozen=True)
class Settings:
    """The content of the files that the flags name."""

    models: dict[str, ModelConfig] | None  # by name; None if the config file lists no models and no custom config
    model_roots: tuple[Path | str, ...]  # the folders and URLs that models may be loaded from
    cache_folder: Path  # for copies of versions in buckets
    batching: BatchingParameters | None  # batching parameters; None if batching is off
    tls: Tls | None  # keys and certificates for gRPC; None if it runs without TLS
    rest_tls: ssl.SSLContext | None  # the TLS context for REST; None if it runs without TLS
    access: Access  # which callers may do what
    metrics_path: str | None  # the REST path of the metrics; None if they aren't served
    session: Any  # the ConfigProto for TensorFlow sessions


def read_settings(flags: CommandLine) -> Settings:
    """Read every file that the flags name; raises StatusError if that fails, or if its settings are invalid."""
    models = read_models(flags)
    model_roots = config_files.parse_model_roots(flags.text("allowed_model_roots"))
    config_files.check_base_paths(models or {}, model_roots)
    labels_for_unavailable = flags.on("allow_version_labels_for_unavailable_models")
    try:
        config_files.check_models(models or {}, {}, lambda _: (), labels_for_unavailable=labels_for_unavailable)
    except config_files.UnavailableVersionError as error:
        raise StatusError(error.code, f"{error.message}. {error.hint}") from error
    rest_tls_file = flags.text("rest_ssl_config_file")
    return Settings(
        models=models,
        model_roots=model_roots,
        cache_folder=Path(flags.text("model_cache_dir") or config_files.default_cache_folder()).absolute(),
        batching=_read_batching(flags),
        tls=read_tls(Path(flags.text("ssl_config_file"))) if flags.text("ssl_config_file") else None,
        rest_tls=read_ssl_context(Path(rest_tls_file)) if rest_tls_file else None,
        access=_read_access(flags),
        metrics_path=_read_metrics_path(flags),
        session=_read_session(flags),
    )


def read_models(flags: CommandLine) -> dict[str, ModelConfig] | None:
    """Return models by name from the config file, None if it lists none, or from `model_name` and its path."""
    if flags.text("model_config_file"):
        return config_files.read_config_file(Path(flags.text("model_config_file")))
    return config_files.single_model(flags.text("model_name"), flags.text("model_base_path"))


def _read_batching(flags: CommandLine) -> BatchingParameters | None:
    if not flags.on("enable_batching"):
        return None
    path = flags.text("batching_parameters_file")
    return config_files.read_batching_parameters(Path(path)) if path else BatchingParameters()


def _read_access(flags: CommandLine) -> Access:
    path = flags.text("auth_tokens_file")
    try:
        return Access(Path(path) if path else None)
    except OSError as error:
        raise invalid_argument(f"--auth_tokens_file={path} cannot be read: {error.strerror}") from error
    except TokensError as error:
        raise invalid_argument(str(error)) from error


def _read_metrics_path(flags: CommandLine) -> str | None:
    if not flags.text("monitoring_config_file") or not flags.integer("rest_api_port"):
        return None
    message = config_files.read_message(Path(flags.text("monitoring_config_file")), schema.MonitoringConfig)
    if not message.prometheus_config.enable:
        return None
    path: str = message.prometheus_config.path or _DEFAULT_METRICS_PATH
    for name in _ROUTES:
        if flags.text(name) == path:
            raise invalid_argument(f"{name} and the metrics page are both {path}: choose two different paths")
    return path


def _read_session(flags: CommandLine) -> Any:
    """Return the file's ConfigProto; flags override it even if they have their defaults, as in the real server."""
    path = flags.text("tensorflow_session_config_file")
    config = config_files.read_message(Path(path), schema.ConfigProto) if path else schema.ConfigProto()
    both = flags.integer("tensorflow_session_parallelism")
    config.intra_op_parallelism_threads = both or flags.integer("tensorflow_intra_op_parallelism")
    config.inter_op_parallelism_threads = both or flags.integer("tensorflow_inter_op_parallelism")
    config.gpu_options.per_process_gpu_memory_fraction = flags.fraction("per_process_gpu_memory_fraction")
    config.allow_soft_placement = True
    precision = flags.text("mixed_precision")
    if precision == "bfloat16":
        config.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16 = schema.RewriterConfig.ON
    elif precision:
        logger.warning("mixed_precision=%s has no effect: the only supported value is bfloat16", precision)
    return config
