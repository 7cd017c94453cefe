"""The command line of tensorflow_model_server: its flags, defaults and way of reading them, plus a few of our own.

Its syntax is TensorFlow's (tensorflow/core/util/command_line_flags.cc), which no library parses alike: `--name=value`
only, an unknown argument is named and passed over, the last occurrence wins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

Value = bool | int | float | str


def _parse_integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError(text)
    return int(text)


_PARSERS = {
    bool: {"true": True, "false": False}.__getitem__,
    int: _parse_integer,
    float: float,
    str: str,
}
_TYPE_NAMES = {bool: "bool", int: "int64", float: "float", str: "string"}


class Support(Enum):
    """What the embedded engine makes of a flag."""

    HONOURED = "honoured"
    WITHOUT_EFFECT = "without effect in the embedded engine"
    REFUSED = "not possible with the embedded engine"


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        name: without the dashes.
        default: its type is the flag's type.
        meaning: for the usage text.
        support: what the embedded engine makes of it.
        extension: whether it is ours, unknown to tensorflow_model_server.
    """

    name: str
    default: Value
    meaning: str
    support: Support = Support.HONOURED
    extension: bool = False


_NO_EFFECT, _REFUSED = Support.WITHOUT_EFFECT, Support.REFUSED

FLAGS = {
    flag.name: flag
    for flag in (
        Flag("port", 8500, "TCP port of gRPC; 0 is none."),
        Flag("grpc_socket_path", "", "Path of a Unix socket on which gRPC listens too."),
        Flag("rest_api_port", 0, "TCP port of REST; 0 is none."),
        Flag("rest_api_num_threads", 0, "Threads that handle REST requests; 0 is four a CPU."),
        Flag("rest_api_timeout_in_ms", 30000, "Limit of a model run for a REST call; 0 or less is none."),
        Flag("rest_api_enable_cors_support", False, "Put CORS headers on REST answers."),
        Flag("model_config_file", "", "Text ModelServerConfig; model_name and model_base_path are then ignored."),
        Flag("model_config_file_poll_wait_seconds", 0, "Seconds between readings of that file; 0 is never."),
        Flag("model_name", "default", "Name of the single model."),
        Flag("model_base_path", "", "Absolute path of the folder that holds the numbered versions."),
        Flag("file_system_poll_wait_seconds", 1, "Seconds between looks at base paths; 0 is once, below 0 never."),
        Flag("max_num_load_retries", 5, "Further attempts after a failed load."),
        Flag("load_retry_interval_micros", 60_000_000, "Microseconds between attempts; below 0 is none."),
        Flag("num_load_threads", 0, "Loads at the same time after the start.", _NO_EFFECT),
        Flag("num_unload_threads", 0, "Unloads at the same time.", _NO_EFFECT),
        Flag("saved_model_tags", "serve", "Comma separated tags of the graph to load."),
        Flag("allow_version_labels_for_unavailable_models", False, "Labels may name versions that are not there yet."),
        Flag("enable_signature_method_name_check", False, "Refuse signatures by their method name."),
        Flag("enable_serialization_as_tensor_content", False, "Answer Predict in tensor_content."),
        Flag("enable_batching", False, "Batch requests."),
        Flag("batching_parameters_file", "", "Text BatchingParameters."),
        Flag("enable_per_model_batching_parameters", False, "Batching parameters from version folders."),
        Flag("enable_model_warmup", True, "Replay warm-up requests before a version is served."),
        Flag("num_request_iterations_for_warmup", 0, "Times each warm-up request is replayed; 0 is once."),
        Flag("monitoring_config_file", "", "Text MonitoringConfig: where REST shows metrics."),
        Flag("enable_grpc_healthcheck_service", False, "Serve grpc.health.v1.Health."),
        Flag("enable_profiler", True, "Serve tensorflow.ProfilerService."),
        Flag("grpc_channel_arguments", "", "Comma separated NAME=VALUE for the gRPC server."),
        Flag("grpc_max_threads", 0, "Threads that handle gRPC calls; 0 is four a CPU."),
        Flag("tensorflow_session_parallelism", 0, "Threads within and between operations; 0 is each flag's own."),
        Flag("tensorflow_intra_op_parallelism", 0, "Threads within an operation; 0 is one for two CPUs."),
        Flag("tensorflow_inter_op_parallelism", 0, "Threads between operations; 0 is one a CPU."),
        Flag("tensorflow_session_config_file", "", "Text ConfigProto; its threads and GPU memory give way to flags."),
        Flag("per_process_gpu_memory_fraction", 0.0, "Part of a GPU's memory to take; 0 is automatic."),
        Flag("flush_filesystem_caches", True, "Drop file caches after loads.", _NO_EFFECT),
        Flag("remove_unused_fields_from_bundle_metagraph", True, "Keep only signatures of the graph.", _NO_EFFECT),
        Flag("prefer_tflite_model", False, "Serve model.tflite where there is one."),
        Flag("num_tflite_pools", 0, "Interpreters of a TF Lite model; 0 is one a CPU."),
        Flag("num_tflite_interpreters_per_pool", 1, "Interpreters in a pool.", _NO_EFFECT),
        Flag("xla_cpu_compilation_enabled", False, "Let XLA compile for the CPU.", _NO_EFFECT),
        Flag("xla_gpu_compilation_enabled", False, "Let XLA compile for the GPU.", _NO_EFFECT),
        Flag("mixed_precision", "", "bfloat16 computes in that type what it safely can."),
        Flag("skip_initialize_tpu", False, "Do not initialise TPUs.", _NO_EFFECT),
        Flag("thread_pool_factory_config_file", "", "Thread pools of one's own.", _NO_EFFECT),
        Flag("ssl_config_file", "", "Text SSLConfig: TLS for gRPC."),
        Flag("platform_config_file", "", "Replaces the platform configuration.", _REFUSED),
        Flag("use_alts_credentials", False, "Google ALTS.", _REFUSED),
        Flag("version", False, "Print versions and exit."),
        Flag("engine", "auto", "auto, embedded or tensorflow_model_server.", extension=True),
        Flag("bind_address", "0.0.0.0", "Address to listen on.", extension=True),
    )
}


class FlagError(Exception):
    """A known flag has a value that doesn't parse."""


@dataclass(frozen=True)
class CommandLine:
    """What was asked for.

    Attributes:
        values: of every flag, defaults included.
        given: names of the flags that stood there.
        unknown: the first argument that is no flag, as it stood; None where there was none.
    """

    values: dict[str, Value]
    given: frozenset[str]
    unknown: str | None

    def integer(self, name: str) -> int:
        """Value of an integer flag."""
        return int(self.values[name])

    def text(self, name: str) -> str:
        """Value of a text flag."""
        return str(self.values[name])

    def fraction(self, name: str) -> float:
        """Value of a flag that is a part of something."""
        return float(self.values[name])

    def on(self, name: str) -> bool:
        """Value of a boolean flag."""
        return self.values[name] is True


def parse(arguments: Sequence[str]) -> CommandLine:
    """Read a command line without its program name.

    Raises:
        FlagError: `Couldn't interpret value abc for flag port.`
    """
    values: dict[str, Value] = {flag.name: flag.default for flag in FLAGS.values()}
    given = set()
    unknown = None
    for argument in arguments:
        if argument == "--":
            break
        name, equals, text = argument.removeprefix("--").partition("=")
        flag = FLAGS.get(name) if argument.startswith("--") else None
        bare_boolean = flag is not None and not equals and isinstance(flag.default, bool)
        if flag is None or not (equals or bare_boolean):
            unknown = unknown or argument
            continue
        values[name] = True if bare_boolean else _parse_value(flag, text)
        given.add(name)
    return CommandLine(values, frozenset(given), unknown)


def usage(program: str) -> str:
    """The text that `--help` and mistakes bring."""
    lines = [f"usage: {program}", "Flags:"]
    for flag in FLAGS.values():
        default = str(flag.default).lower() if isinstance(flag.default, bool) else flag.default
        shown = f'"{default}"' if isinstance(default, str) and not isinstance(flag.default, bool) else default
        note = "" if flag.support is Support.HONOURED else f" ({flag.support.value})"
        lines.append(
            f"\t--{flag.name}={shown}".ljust(48) + f"\t{_TYPE_NAMES[type(flag.default)]}\t{flag.meaning}{note}"
        )
    return "\n".join(lines) + "\n"


def _parse_value(flag: Flag, text: str) -> Value:
    try:
        value: Value = _PARSERS[type(flag.default)](text)  # type: ignore[operator]
    except (ValueError, KeyError):
        raise FlagError(f"Couldn't interpret value {text} for flag {flag.name}.") from None
    return value
