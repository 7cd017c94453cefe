"""The command line of tensorflow_model_server: its flags, their defaults and its syntax, plus our own flags.

The syntax is TensorFlow's (tensorflow/core/util/command_line_flags.cc), which no library implements: only
`--name=value` is valid, only the first unknown argument is reported, and the last occurrence wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import partial

from savedmodel_bakery.serving.admission.limits import Limits

Value = bool | int | float | str


def _parse_integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError(text)
    return int(text)


_PARSERS = {bool: {"true": True, "false": False}.__getitem__, int: _parse_integer, float: float, str: str}
_TYPE_NAMES = {bool: "bool", int: "int64", float: "float", str: "string"}


class Support(Enum):
    """How the embedded engine treats a flag."""

    HONOURED = "honoured"
    WITHOUT_EFFECT = "without effect in the embedded engine"
    REFUSED = "not possible with the embedded engine"


@dataclass(frozen=True)
class Flag:
    """One flag."""

    name: str  # without the leading dashes
    default: Value  # the default value; its type is the flag's type
    meaning: str  # one line for the usage text
    support: Support = Support.HONOURED  # how the embedded engine treats it
    extension: bool = False  # whether it is our own flag, unknown to tensorflow_model_server


_own = partial(Flag, extension=True)
_NO_EFFECT, _REFUSED = Support.WITHOUT_EFFECT, Support.REFUSED

FLAGS = {
    flag.name: flag
    for flag in (
        Flag("port", 8500, "TCP port for gRPC; 0 disables it."),
        Flag("grpc_socket_path", "", "Path of a Unix socket for gRPC, in addition to the port."),
        Flag("rest_api_port", 0, "TCP port for REST; 0 disables it; or AIP_HTTP_PORT."),
        Flag("rest_api_num_threads", 0, "Threads for REST requests; 0 means four per CPU."),
        Flag("rest_api_timeout_in_ms", 30000, "Time limit of a model run for REST, in ms; 0 or less means none."),
        Flag("rest_api_enable_cors_support", False, "Add CORS headers to REST responses."),
        Flag("model_config_file", "", "Text ModelServerConfig; overrides model_name and model_base_path."),
        Flag("model_config_file_poll_wait_seconds", 0, "Seconds between reads of model_config_file; 0 means once."),
        Flag("model_name", "default", "Name of the single model."),
        Flag("model_base_path", "", "Path or URL of the folder with the model's version folders; or AIP_STORAGE_URI."),
        Flag("file_system_poll_wait_seconds", 1, "Seconds between scans for versions; 0: only once, below 0: never."),
        Flag("max_num_load_retries", 5, "Retries after a version failed to load."),
        Flag("load_retry_interval_micros", 60_000_000, "Microseconds between retries; below 0 means no pause."),
        Flag("num_load_threads", 0, "Versions to load at the same time after the start.", _NO_EFFECT),
        Flag("num_unload_threads", 0, "Versions to unload at the same time.", _NO_EFFECT),
        Flag("saved_model_tags", "serve", "Comma-separated tags of the graph to load."),
        Flag("allow_version_labels_for_unavailable_models", False, "Accept labels for versions not yet available."),
        Flag("enable_signature_method_name_check", False, "Reject signatures with a method name of another API."),
        Flag("enable_serialization_as_tensor_content", False, "Return Predict outputs in tensor_content."),
        Flag("enable_batching", False, "Join concurrent requests into batches."),
        Flag("batching_parameters_file", "", "Text BatchingParameters."),
        Flag("enable_per_model_batching_parameters", False, "Read batching parameters from the version folders."),
        Flag("enable_model_warmup", True, "Replay a version's warm-up requests before serving it."),
        Flag("num_request_iterations_for_warmup", 0, "Times to replay each warm-up request; 0 means once."),
        Flag("monitoring_config_file", "", "Text MonitoringConfig: the REST path of the metrics."),
        Flag("enable_grpc_healthcheck_service", False, "Serve grpc.health.v1.Health."),
        Flag("enable_profiler", True, "Serve tensorflow.ProfilerService."),
        Flag("grpc_channel_arguments", "", "Comma-separated NAME=VALUE arguments of the gRPC server."),
        Flag("grpc_max_threads", 0, "Threads for gRPC calls; 0 means four per CPU."),
        Flag("tensorflow_session_parallelism", 0, "Intra-op and inter-op threads; 0 uses the two flags below."),
        Flag("tensorflow_intra_op_parallelism", 0, "Threads within an operation; 0 means one per two CPUs."),
        Flag("tensorflow_inter_op_parallelism", 0, "Threads across operations; 0 means one per CPU."),
        Flag("tensorflow_session_config_file", "", "Text ConfigProto; flags override its threads and GPU memory."),
        Flag("per_process_gpu_memory_fraction", 0.0, "Fraction of a GPU's memory to use; 0 means automatic."),
        Flag("flush_filesystem_caches", True, "Drop file caches after loading.", _NO_EFFECT),
        Flag("remove_unused_fields_from_bundle_metagraph", True, "Keep only the graph's signatures.", _NO_EFFECT),
        Flag("prefer_tflite_model", False, "Serve model.tflite if the version has one."),
        Flag("num_tflite_pools", 0, "Interpreters per TF Lite model; 0 means one per CPU."),
        Flag("num_tflite_interpreters_per_pool", 1, "Interpreters per pool.", _NO_EFFECT),
        Flag("xla_cpu_compilation_enabled", False, "Allow XLA compilation for the CPU.", _NO_EFFECT),
        Flag("xla_gpu_compilation_enabled", False, "Allow XLA compilation for the GPU.", _NO_EFFECT),
        Flag("mixed_precision", "", "bfloat16: compute in bfloat16 where TensorFlow considers it safe."),
        Flag("skip_initialize_tpu", False, "Do not initialise TPUs.", _NO_EFFECT),
        Flag("thread_pool_factory_config_file", "", "Custom thread pools.", _NO_EFFECT),
        Flag("ssl_config_file", "", "Text SSLConfig: TLS for gRPC."),
        Flag("platform_config_file", "", "Text PlatformConfigMap; replaces the default.", _REFUSED),
        Flag("use_alts_credentials", False, "Use Google ALTS.", _REFUSED),
        Flag("version", False, "Print versions and exit."),
        _own("engine", "auto", "auto, embedded or tensorflow_model_server."),
        _own("bind_address", "0.0.0.0", "IP address to listen on."),
        _own("allowed_hosts", "", "Comma-separated names that REST may be called by (Host); empty means any."),
        _own("allow_unknown_flags", False, "Start although the command line has unknown arguments."),
        _own("allowed_model_roots", "", "Comma-separated folders and URLs of models; empty means any."),
        _own("model_cache_dir", "", "Folder for copies from buckets; empty means ~/.cache/savedmodel-bakery/models."),
        _own("auth_tokens_file", "", "TOML file with the tokens that callers need; empty means none."),
        _own("rest_ssl_config_file", "", "Text SSLConfig; enables TLS for REST."),
        _own("allow_plaintext_rest", False, "Serve REST without TLS while gRPC has TLS."),
        _own("enable_playground", False, "Serve a page to try the models in a browser, /playground on the REST port."),
        _own("health_route", "", "REST path that is 200 while all models are AVAILABLE; or AIP_HEALTH_ROUTE."),
        _own("predict_route", "", "REST path for :predict and /photos of the first model; or AIP_PREDICT_ROUTE."),
        _own("max_waiting_calls", Limits.waiting_calls, "Calls that wait for others to end, on each port."),
        _own("max_connections", Limits.connections, "Connections to each port; fewer if files may not be opened."),
        _own("max_message_bytes", Limits.message_bytes, "Size of a request as sent."),
        _own("max_unpacked_bytes", Limits.unpacked_bytes, "Size of a compressed request after unpacking."),
        _own("max_header_bytes", Limits.header_bytes, "Size of the headers of a request."),
        _own(
            "header_timeout_seconds",
            round(Limits.header_timeout_s),
            "Seconds until the headers of a request are complete.",
        ),
        _own("body_timeout_seconds", round(Limits.body_timeout_s), "Seconds from the headers of a request to its end."),
        _own("max_rows_per_request", Limits.rows, "Strings in one input, or examples, of a request."),
        _own("memory_budget_bytes", 0, "Memory for all requests; 0 means 70 % less what models use."),
        _own("access_log", False, "Write a line per request to stdout, and return its id in x-request-id."),
        _own("access_log_json", False, "Write these lines as JSON objects; needs --access_log."),
        _own("stage_sample_interval", 0, "Time decoding and network of one in so many runs, as metrics; 0 means none."),
    )
}


class FlagError(Exception):
    """The value of a known flag doesn't parse."""


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line."""

    values: dict[str, Value]  # the value of every flag, defaults included
    explicit: frozenset[str]  # names of the flags that the command line sets
    unknown: str | None = None  # the first argument that isn't a known flag; None if there is none
    hint: str = ""  # what may be meant by the unknown argument

    def integer(self, name: str) -> int:
        """Return the value of an integer flag."""
        return int(self.values[name])

    def text(self, name: str) -> str:
        """Return the value of a text flag."""
        return str(self.values[name])

    def fraction(self, name: str) -> float:
        """Return the value of a float flag."""
        return float(self.values[name])

    def on(self, name: str) -> bool:
        """Return the value of a boolean flag."""
        return self.values[name] is True


def parse(arguments: Sequence[str]) -> CommandLine:
    """Parse command-line arguments, without the program name; raises FlagError if a value doesn't parse."""
    values: dict[str, Value] = {flag.name: flag.default for flag in FLAGS.values()}
    explicit = set()
    unknown, hint = None, ""
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        name, equals, text = argument.removeprefix("--").partition("=")
        flag = FLAGS.get(name) if argument.startswith("--") else None
        bare_boolean = flag is not None and not equals and isinstance(flag.default, bool)
        if flag is None or not (equals or bare_boolean):
            if unknown is None:
                unknown, hint = argument, _hint(argument, "".join(arguments[index + 1 : index + 2]))
            continue
        values[name] = True if bare_boolean else _parse_value(flag, text)
        explicit.add(name)
    return CommandLine(values, frozenset(explicit), unknown, hint)


def usage(program: str) -> str:
    """Return the usage text, printed by `--help` and after errors."""
    lines = [f"usage: {program}", "Flags:"]
    for flag in FLAGS.values():
        note = "" if flag.support is Support.HONOURED else f" ({flag.support.value})"
        name = f"\t--{flag.name}={json.dumps(flag.default)}"
        lines.append(f"{name:48}\t{_TYPE_NAMES[type(flag.default)]}\t{flag.meaning}{note}")
    return "\n".join(lines) + "\n"


def _parse_value(flag: Flag, text: str) -> Value:
    try:
        value: Value = _PARSERS[type(flag.default)](text)  # type: ignore[operator]
    except (ValueError, KeyError):
        raise FlagError(f"Couldn't interpret value {text} for flag {flag.name}.") from None
    return value


def _hint(argument: str, following: str) -> str:
    """Return what may be meant by an unknown argument, given the argument after it: perhaps a value without `=`."""
    if not argument.startswith("-"):
        return "flags are written --name=value"
    name, equals, value = argument.lstrip("-").partition("=")
    nearest = [name] if name in FLAGS else get_close_matches(name.lower().replace("-", "_"), FLAGS, n=1)
    if not nearest:
        return "--help lists the flags"
    [flag] = nearest
    is_bare = not equals and isinstance(FLAGS[flag].default, bool)
    value = value if equals else following if not following.startswith("-") else ""
    suggestion = f"--{flag}" if is_bare else f"--{flag}={value or 'VALUE'}"
    if f"--{flag}" == argument:
        return f'the value must follow "=": {suggestion}'
    return f"did you mean {suggestion}?"
