"""Write docs/compatibility.md: what the embedded server does as tensorflow_model_server does, and what not.

    python tools/make_compatibility.py [OUT]

Flags come from the server's own table; how something differs is told here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from savedmodel_bakery.serving.options.flags import FLAGS, Flag, Support
from savedmodel_bakery.wire.schema import METHODS

SAME = "same"

FLAG_NOTES = {
    "rest_api_timeout_in_ms": "same; a TF Lite run is not stopped, only the wait for an interpreter",
    "enable_profiler": "same: by default any caller can have trace files written wherever the server may write; "
    "`--enable_profiler=false` switches that off",
    "prefer_tflite_model": "same, but refusals of shapes carry TF Lite's own texts, and ours for another rank",
    "enable_grpc_healthcheck_service": "same, and NOT_SERVING once the server is told to stop",
    "grpc_max_threads": "further calls wait for a thread rather than fail with RESOURCE_EXHAUSTED",
    "max_num_load_retries": "same; loads, unloads and pauses of one model hold up no other",
    "monitoring_config_file": "same, but a bad file ends the start, and TensorFlow's own metrics are missing",
    "num_load_threads": "without effect: every load has a thread of its own",
    "num_unload_threads": "without effect: every unload has a thread of its own",
    "num_tflite_pools": "same: interpreters of a model; the default is one a CPU",
    **dict.fromkeys(
        ("xla_cpu_compilation_enabled", "xla_gpu_compilation_enabled"),
        "without effect: functions made for XLA are compiled in any case; the real server wants the flag for them",
    ),
    "tensorflow_intra_op_parallelism": "same, but 0 is one for two CPUs, where the real server takes one a CPU",
    "tensorflow_session_config_file": "same, but graphs are optimised in one round and not by way of MLIR",
    "ssl_config_file": "same, but a bad file ends the start with a message rather than abort it",
    "version": "same lines, with this project's version",
}

RPC_NOTES = {
    "HandleReloadConfigRequest": "same; a refused configuration does not spoil later ones",
}
OTHER_RPCS = {
    "grpc.health.v1.Health": "same, with its flag",
    "tensorflow.ProfilerService": "same: Profile and Terminate",
    "tensorflow.serving.SessionService": "same: UNIMPLEMENTED",
}

URLS = {
    "POST /v1/models/NAME[/versions/N or /labels/LABEL]:predict": SAME,
    "POST …:classify, …:regress": SAME,
    "GET /v1/models/NAME[/versions/N or /labels/LABEL]": SAME,
    "GET …/metadata": "same; white space in the JSON may differ",
    "GET on the monitoring path": "same",
    "HEAD, PUT, DELETE, PATCH": "same; the answer to HEAD has no body",
    "OPTIONS": SAME,
    "anything else": "same pages",
}

BEHAVIOUR = {
    "callers who give up": "what still waits for a thread is not computed, over gRPC and REST; what runs is finished, "
    "or stopped at its deadline",
    "SIGTERM, SIGINT": "requests in flight are answered, for up to 25 seconds, and the exit status is 0",
    "address": "`--bind_address`, 0.0.0.0 unless given; REST listens there too rather than on every IPv6 address",
    "batches": "calls of other element types or ranks are run apart rather than fail together or crash; a call "
    "without rows is answered",
    "JSON": "values nested deeper than a tensor can be are refused; the real server may crash",
    "`tensor_content` and REST": "REST answers right with `--enable_serialization_as_tensor_content`",
    "graphs of at most 256 operations, without loops and queues": "operations run one after the other in the thread of "
    "their call, which answers tiny requests sooner",
    "logs": "other lines but for those that say where the server listens",
}

HEAD = """# Compatibility with tensorflow_model_server

<!-- Made by tools/make_compatibility.py; tests/serving/test_compatibility.py compares. -->

How the embedded server does what `tensorflow_model_server` 2.21 does: *same* is the same answer, status code and text.
The recorded answers in `tests/golden/` are the proof.
"""


def flag_row(flag: Flag) -> str:
    """What becomes of a flag."""
    if flag.name in FLAG_NOTES:
        return FLAG_NOTES[flag.name]
    if flag.extension:
        return "ours"
    return {
        Support.HONOURED: SAME,
        Support.WITHOUT_EFFECT: "without effect",
        Support.REFUSED: "not done: refused",
    }[flag.support]


def table(title: str, first: str, rows: dict[str, str]) -> str:
    """A section with one table."""
    lines = [f"| {name} | {text} |" for name, text in rows.items()]
    return "\n".join([f"\n## {title}\n", f"| {first} | here |", "| --- | --- |", *lines, ""])


def compatibility() -> str:
    """The whole page."""
    calls = {f"`{method.path[1:]}`": RPC_NOTES.get(name, SAME) for name, method in METHODS.items()}
    others = {f"`{name}`": text for name, text in OTHER_RPCS.items()}
    return "".join(
        (
            HEAD,
            table("Flags", "flag", {f"`--{flag.name}`": flag_row(flag) for flag in FLAGS.values()}),
            table("RPCs", "call or service", {**calls, **others}),
            table("URLs", "URL", URLS),
            table("Behaviour that differs", "", BEHAVIOUR),
        )
    )


def main() -> None:
    """Write the page to the path given, or into docs/."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs" / "compatibility.md"
    out.write_text(compatibility(), encoding="utf-8")


if __name__ == "__main__":
    main()
