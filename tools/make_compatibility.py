"""Write docs/reference/compatibility.md, which compares the embedded server with tensorflow_model_server.

    python tools/make_compatibility.py [OUT]

The flags come from the server's own table. Edit this file to describe a difference.
"""

from __future__ import annotations

import sys
from pathlib import Path

from savedmodel_bakery.exporter.commands.inspect import OLDEST, OLDEST_FOR_PHOTOS, TESTED_VERSIONS
from savedmodel_bakery.serving.options.flags import FLAGS, Flag, Support
from savedmodel_bakery.wire.schema import METHODS

SAME = "same"

FLAG_NOTES = {
    "allow_unknown_flags": "extension, off by default: an unknown argument ends the start with exit code 255 and a "
    "hint; with the flag, it is printed with the usage and ignored, as by the real server",
    "allowed_model_roots": "extension, off by default; with it, models outside these folders are rejected with "
    "PERMISSION_DENIED. Without it, models may be anywhere, as with the real server",
    "rest_api_timeout_in_ms": "same, but a running TF Lite model is not stopped; only the wait for an interpreter ends",
    "enable_profiler": "same, but only for callers on the same machine, or with `--auth_tokens_file` for those with an "
    "admin token (no flag permits everybody, as the real server does); `--enable_profiler=false` turns it off",
    "prefer_tflite_model": "same, but an input rejects sizes other than those that the model fixes, with which TF Lite "
    "may read out of bounds; only a column of numbers also takes a vector",
    "enable_grpc_healthcheck_service": "same, and NOT_SERVING while the server stops",
    "grpc_channel_arguments": "same, but `grpc.http2.bdp_probe` is 0 and `grpc.http2.lookahead_bytes` 262,144 by "
    "default: a call that is rejected sends 256 KiB at most, and a large message over a slow line takes more round "
    "trips. `grpc.http2.bdp_probe=1` restores the real server's behaviour. `grpc.enable_channelz` is 0: nothing serves "
    "its records",
    "grpc_max_threads": "calls that run at the same time; further ones wait instead of failing with "
    "RESOURCE_EXHAUSTED, up to `--max_waiting_calls`",
    "rest_api_num_threads": "calls that run at the same time; further ones wait, up to `--max_waiting_calls`",
    "enable_playground": "extension, off by default: [the playground](../how-to/playground.md) at `/playground` of the "
    "REST port, to which `/` redirects; without it, both return the real server's 404",
    "health_route": "extension, off by default: the path of the health check of "
    "[SageMaker](../how-to/sagemaker.md) or [Vertex AI](../how-to/vertex.md)",
    "predict_route": "extension, off by default: the path by which they run a model",
    "max_waiting_calls": f"extension, {FLAGS['max_waiting_calls'].default} by default; a large number restores the "
    "real server's REST, where any number of calls wait",
    "max_connections": f"extension, {FLAGS['max_connections'].default:,} by default, but fewer than the process may "
    "open files; the real server has no limit",
    "max_message_bytes": "extension, 2 GiB by default, protobuf's limit, as in the real server for gRPC; it has no "
    "limit for REST",
    "max_unpacked_bytes": "extension, 100 MiB by default, as in the real server for REST; it has no limit for "
    "gRPC, which a large number restores",
    "max_header_bytes": "extension, 64 KiB by default for REST, where the real server accepts any number, which a "
    "large number restores; a quarter of it over gRPC, where the real server accepts 8 to 16 KiB",
    "header_timeout_seconds": "extension, 10 by default; the real server waits for ever, as a large number does. gRPC "
    "also pings each connection as often, and closes it if there is no answer in as long again",
    "body_timeout_seconds": "extension, 120 by default; the real server waits for ever, as a large number does",
    "max_rows_per_request": "extension, 10,000 by default, of strings and examples; the real server has no limit, "
    "which a large number restores",
    "memory_budget_bytes": "extension, by default 70 % of the memory of the machine or the container less what models "
    "use; a request that needs more is rejected, and one that finds too little free waits. The real server has no "
    "limit, which a large number restores",
    "model_base_path": "same, and URLs of buckets: see below",
    "model_cache_dir": "extension: where versions of base paths that are URLs are copied to",
    "max_num_load_retries": "same, but loads, unloads and pauses of one model do not delay other models",
    "monitoring_config_file": "same, but an invalid file fails the start, calls for unknown models are counted under "
    "an empty name, and TensorFlow's own metrics are missing; [metrics of our own](metrics.md) follow on the page",
    "access_log": "extension, off by default: [a line per request](metrics.md#the-access-log)",
    "access_log_json": "extension, off by default: the lines of `--access_log` as JSON objects",
    "stage_sample_interval": "extension, off by default: [seconds for decoding and for the network](metrics.md#images)",
    "num_load_threads": "without effect: every load has its own thread",
    "num_unload_threads": "without effect: every unload has its own thread",
    "num_tflite_pools": "same: interpreters per model; the default is one per CPU",
    **dict.fromkeys(
        ("xla_cpu_compilation_enabled", "xla_gpu_compilation_enabled"),
        "without effect: XLA functions are always compiled; the real server requires the flag",
    ),
    "tensorflow_intra_op_parallelism": "same, but 0 means one thread per two CPUs, not one per CPU",
    "tensorflow_session_config_file": "same, but graphs are optimised in one round and without MLIR",
    "ssl_config_file": "same, but an invalid file fails the start with a message instead of a crash, and REST must "
    "have TLS too; `--allow_plaintext_rest` restores the real server's behaviour",
    "version": "same lines, but the version is this project's",
}

RPC_NOTES = {
    "HandleReloadConfigRequest": "same, but only for callers on the same machine, or with `--auth_tokens_file` for "
    "those with an admin token (no flag permits everybody, as the real server does); a rejected configuration does "
    "not affect later ones; a call that waits for a missing base path ends with the call (DEADLINE_EXCEEDED, "
    "CANCELLED), or when another configuration arrives (ABORTED)",
}
OTHER_RPCS = {
    "grpc.health.v1.Health": "same, enabled by the same flag",
    "grpc.reflection.v1.ServerReflection": "extension, also v1alpha: `grpcurl` needs no proto files",
    "tensorflow.ProfilerService": "same: Profile and Terminate",
    "tensorflow.serving.SessionService": "same: UNIMPLEMENTED",
    "inference.GRPCInferenceService": "extension: the [v2 protocol](v2.md)",
}

URLS = {
    "POST /v1/models/NAME[/versions/N or /labels/LABEL]:predict": SAME,
    "POST …:classify, …:regress": SAME,
    "GET /v1/models/NAME[/versions/N or /labels/LABEL]": SAME,
    "GET …/metadata": "same, but white space in the JSON may differ",
    "GET on the monitoring path": "same",
    "HEAD, PUT, DELETE, PATCH": "same, but the response to HEAD has no body",
    "OPTIONS": SAME,
    "GET /v2/health/live": "extension: 200 while the server runs",
    "GET /v2/health/ready": "extension: 200 while every configured model has an available version, else 503",
    "other URLs of /v2": "extension: the [v2 protocol](v2.md); other paths return the same 404",
    "POST /photos/NAME[/versions/N or /labels/LABEL]": "extension: [runs a model on "
    "photos](../how-to/playground.md#with-curl)",
    "GET /openapi.json": "extension: an OpenAPI document of /photos, /v1 and /v2",
    "anything else": "same responses",
}

BEHAVIOUR = {
    "cancelled calls": "a call that waits is dropped, over gRPC and REST, also when its connection closes. A call that "
    "runs a graph with loops, such as a baked classifier, ends after the operation that is running; a graph without "
    "loops runs to its end",
    "overload": "a call that would miss its deadline is rejected at once with RESOURCE_EXHAUSTED, over REST with 429 "
    "and Retry-After; health, status and metadata have their own threads",
    "SIGTERM, SIGINT": "the server finishes running requests for up to 25 seconds and exits with 0",
    "address": "`--bind_address`, 0.0.0.0 by default; REST listens there too, instead of on every IPv6 address",
    "batching": "calls with different element types, ranks or shapes run separately instead of failing together or "
    "crashing, and a call that fails does not fail the others; a call without rows succeeds",
    "JSON": "values nested deeper than a tensor allows are rejected, as are more than 1000 levels elsewhere; the real "
    "server may crash. The error about more than 200,000 values that are not in an object shows none of them. The last "
    "digits of long numbers in error messages may differ",
    "errors of the graph": "same, but one whose text is not valid UTF-8, because it quotes such a request, has the "
    "code INVALID_ARGUMENT (400)",
    "`tensor_content` and REST": "REST responses are correct with `--enable_serialization_as_tensor_content`",
    "graphs of at most 256 operations, without loops and queues": "operations run one after the other in the call's "
    "thread, which makes tiny requests faster",
    "missing base paths": "delay neither new versions of other models nor later configurations, by RPC or from the "
    "polled file; at the start the server waits for them, as the real server does, but "
    "reads the file meanwhile",
    "base paths that are URLs": "`gs://`, `s3://` and others for which [a package is installed](../how-to/buckets.md): "
    "complete versions are copied and then loaded, and one that cannot be copied has the status START with the error. "
    "The real server reads `gs://` only, in place",
    "status of a version whose load is retried": "LOADING with the error of the last attempt, not without one",
    "logs": "different, except for the lines that say where the server listens",
}

HEAD = """# Compatibility with tensorflow_model_server

<!-- Generated by tools/make_compatibility.py; checked by tests/serving/test_compatibility.py. -->

How the embedded server compares with `tensorflow_model_server` 2.21. *same* means the same response, status code and
text; tests compare the recorded responses in `tests/golden/`.
"""


def flag_row(flag: Flag) -> str:
    """Return how the embedded server treats a flag."""
    if flag.name in FLAG_NOTES:
        return FLAG_NOTES[flag.name]
    if flag.extension:
        return "extension"
    return {
        Support.HONOURED: SAME,
        Support.WITHOUT_EFFECT: "without effect",
        Support.REFUSED: "not supported: rejected",
    }[flag.support]


def table(title: str, first: str, rows: dict[str, str]) -> str:
    """Return a section with one table."""
    lines = [f"| {name} | {text} |" for name, text in rows.items()]
    return "\n".join([f"\n## {title}\n", f"| {first} | embedded server |", "| --- | --- |", *lines, ""])


OLDER_VERSIONS = """
## Older versions of TensorFlow

The network and the decoding of photos are in the version's folder, so an older server can run it.
`make test-runtimes` loads bakes of TensorFlow 2.21 in a TensorFlow 1 Session of tensorflow-cpu for x86, as
`tensorflow_model_server` loads them. It compares the outputs of all signatures for the requests in the goldens, and for
a photo of each format. *same* means the same labels, and numbers within 0.00001; with `--precision bfloat16` and
`float16`, within 0.008 and 0.001. *no* for WebP means that such a photo gets an error in its row; the rest of the model
works.

Other versions and GPUs were not tried, and your network may have operations that these networks do not have. So replay
the goldens on your server with [`bakery check`](commands.md#bakery-check). `bakery inspect` names the oldest version
that was tested with the options of a bake.

"""


def older_versions() -> str:
    """Return the section with the versions of TensorFlow that were tested."""
    lines = [f"| | {' | '.join(TESTED_VERSIONS)} |", f"| --- |{' --- |' * len(TESTED_VERSIONS)}"]
    photos = {f"photos in {name}": oldest for name, oldest in OLDEST_FOR_PHOTOS.items()}
    for name, oldest in {**OLDEST, **photos}.items():
        first = TESTED_VERSIONS.index(oldest)
        cells = [SAME if number >= first else "no" for number in range(len(TESTED_VERSIONS))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return OLDER_VERSIONS + "\n".join(lines) + "\n"


def compatibility() -> str:
    """Return the page."""
    calls = {f"`{method.path[1:]}`": RPC_NOTES.get(name, SAME) for name, method in METHODS.items()}
    others = {f"`{name}`": text for name, text in OTHER_RPCS.items()}
    return "".join(
        (
            HEAD,
            table("Flags", "flag", {f"`--{flag.name}`": flag_row(flag) for flag in FLAGS.values()}),
            table("RPCs", "call or service", {**calls, **others}),
            table("URLs", "URL", URLS),
            table("Behaviour that differs", "", BEHAVIOUR),
            older_versions(),
        )
    )


def main() -> None:
    """Write the page to OUT, by default docs/reference/compatibility.md."""
    out = (
        Path(sys.argv[1])
        if len(sys.argv) > 1
        else Path(__file__).parent.parent / "docs" / "reference" / "compatibility.md"
    )
    out.write_text(compatibility(), encoding="utf-8")


if __name__ == "__main__":
    main()
