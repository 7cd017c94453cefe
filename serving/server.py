"""The embedded model server: loads the models, starts gRPC and REST, and runs until it receives a signal."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from savedmodel_bakery import tracing
from savedmodel_bakery.exits import FAILED
from savedmodel_bakery.serving import process, warmup
from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.models.lifecycle import Lifecycle
from savedmodel_bakery.serving.models.loading import Batching, LoadOptions, load
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.models.version_threads import LifecycleOptions
from savedmodel_bakery.serving.options.config_files import UnavailableVersionError
from savedmodel_bakery.serving.options.flags import CommandLine
from savedmodel_bakery.serving.options.settings import Settings, read_models
from savedmodel_bakery.serving.ports import start_grpc, start_rest
from savedmodel_bakery.serving.process import StopSignals
from savedmodel_bakery.serving.telemetry import state
from savedmodel_bakery.serving.telemetry.requests import AccessLog, Requests
from savedmodel_bakery.wire.model_config import parse_config
from savedmodel_bakery.wire.status import Code, StatusError

logger = logging.getLogger(__name__)

# How long running requests may take after SIGTERM. By default, Kubernetes sends SIGKILL 30 s after SIGTERM.
GRACE_S = 25.0

_PORTS = 2  # gRPC and REST share the files that the process may open
_LANES = 3  # runs and other calls over gRPC, and REST, share the threads for calls
_OTHER_FILES = 100  # for models, logs and listening
_DEFAULT_THREADS = 4 * (os.cpu_count() or 1)  # of each port


def serve(
    flags: CommandLine,
    settings: Settings,
    signals: StopSignals,
    *,
    require_rest: bool = False,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Load and serve the models; after SIGTERM or SIGINT, finish the running requests and return.

    If REST can't listen, only gRPC runs, unless `require_rest` is set. `on_ready` is called once, when the models are
    loaded and the ports are open.

    Raises:
        StatusError: a model can't be loaded, gRPC can't listen, or REST can't listen and is required.
    """
    _raise_file_limit()
    threading.excepthook = _end_without_memory
    stop = threading.Event()
    registry = Registry()
    memory = MemoryBudget(flags.integer("memory_budget_bytes"))
    state.watch_memory(memory)
    lifecycle = Lifecycle(
        registry,
        partial(load, options=_load_options(flags, settings)),
        _lifecycle_options(flags, settings),
        on_change=memory.measure_models,
    )

    def on_signal() -> None:
        stop.set()
        lifecycle.stop()

    signals.action = on_signal
    # The file is read while the first models load too, so that a wrong base path can be corrected.
    threading.Thread(target=_poll, args=(stop, flags, lifecycle), name="config", daemon=True).start()
    lifecycle.start(settings.models)
    if stop.is_set():
        return
    limits = _limits(flags)  # now that TensorFlow has most of its threads
    access_log = AccessLog(as_json=flags.on("access_log_json")) if flags.on("access_log") else None
    requests = Requests(access_log) if access_log or tracing.is_on() else None
    grpc_server = start_grpc(
        flags,
        settings,
        registry,
        partial(_reload, lifecycle),
        Admission(limits, memory, turns=flags.integer("grpc_max_threads") or _DEFAULT_THREADS),
        requests,
    )
    rest_server = start_rest(
        flags,
        settings,
        registry,
        Admission(limits, memory, turns=flags.integer("rest_api_num_threads") or _DEFAULT_THREADS),
        requests,
    )
    if require_rest and rest_server is None:
        raise StatusError(Code.UNAVAILABLE, "REST is not available")
    if on_ready:
        on_ready()
    stop.wait()
    stopping = [threading.Thread(target=grpc_server.stop, args=(GRACE_S,))]
    if rest_server:
        stopping.append(threading.Thread(target=rest_server.stop, args=(GRACE_S,)))
    for thread in stopping:
        thread.start()
    deadline = time.monotonic() + GRACE_S + 1
    for thread in stopping:
        thread.join(deadline - time.monotonic())


def _end_without_memory(failure: threading.ExceptHookArgs) -> None:
    """Log the error of a thread. End the process if it has no memory: a thread that serves a port may have ended."""
    logger.critical("Thread %s has failed", failure.thread.name if failure.thread else "", exc_info=failure.exc_value)
    if isinstance(failure.exc_value, MemoryError):
        os._exit(FAILED)


def _raise_file_limit() -> None:
    """Raise the limit of open files, and so of connections, to the system's maximum; the default is often 1024."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def _poll(stop: threading.Event, flags: CommandLine, lifecycle: Lifecycle) -> None:
    """Reload the config file at the configured interval, whether it has changed or not, until `stop`."""
    interval_s = flags.integer("model_config_file_poll_wait_seconds")
    if interval_s <= 0 or not flags.text("model_config_file"):
        return
    logged = ""
    while not stop.wait(interval_s):
        try:
            logged = _reread(flags, lifecycle, logged)
        except Exception:
            logger.exception("Polling the config file failed")


def _reread(flags: CommandLine, lifecycle: Lifecycle, logged: str) -> str:
    """Apply the config file; return the error that the log has a hint for, which may be the last one's."""
    try:
        models = read_models(flags)
    except StatusError as error:
        logger.error("Failed to read ModelServerConfig file: %s", error)
        return logged
    try:
        lifecycle.apply(models)
    except StatusError as error:
        logger.error("PollFilesystemAndReloadConfig failed to ReloadConfig: %s", error)
        if logged != error.message:
            _log_hint(error)
        return error.message
    return ""


def _reload(lifecycle: Lifecycle, config: Any, context: RequestContext) -> None:
    try:
        lifecycle.reload(parse_config(config), context)
    except StatusError as error:
        logger.error("HandleReloadConfigRequest failed: %s", error)
        _log_hint(error)
        raise


def _log_hint(error: StatusError) -> None:
    if isinstance(error, UnavailableVersionError):
        logger.error(error.hint)


def _limits(flags: CommandLine) -> Limits:
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    threads = max(1, process.count_call_threads() // _LANES)
    if threads < flags.integer("max_waiting_calls"):
        logger.warning("The system permits few threads: at most %d calls run or wait on each port", threads)
    return Limits(
        waiting_calls=flags.integer("max_waiting_calls"),
        connections=max(1, min(flags.integer("max_connections"), (open_files - _OTHER_FILES) // _PORTS)),
        message_bytes=flags.integer("max_message_bytes"),
        header_bytes=flags.integer("max_header_bytes"),
        unpacked_bytes=flags.integer("max_unpacked_bytes"),
        header_timeout_s=flags.integer("header_timeout_seconds"),
        body_timeout_s=flags.integer("body_timeout_seconds"),
        rows=flags.integer("max_rows_per_request"),
        threads=threads,
    )


def _load_options(flags: CommandLine, settings: Settings) -> LoadOptions:
    iterations = max(1, flags.integer("num_request_iterations_for_warmup"))
    batching = None
    if settings.batching is not None:
        batching = Batching(
            settings.batching,
            per_model=flags.on("enable_per_model_batching_parameters"),
            slots=threading.Semaphore(settings.batching.num_batch_threads),
        )
    return LoadOptions(
        tags=(flags.text("saved_model_tags") or "serve").split(","),
        session_config=settings.session.SerializeToString(),
        model_roots=(*settings.model_roots, settings.cache_folder) if settings.model_roots else (),
        prefer_tf_lite=flags.on("prefer_tflite_model"),
        tf_lite_interpreters=flags.integer("num_tflite_pools"),
        batching=batching,
        warm_up=partial(warmup.replay, iterations=iterations) if flags.on("enable_model_warmup") else None,
        stage_sample_interval=flags.integer("stage_sample_interval"),
    )


def _lifecycle_options(flags: CommandLine, settings: Settings) -> LifecycleOptions:
    return LifecycleOptions(
        poll_wait_s=flags.integer("file_system_poll_wait_seconds"),
        max_load_retries=flags.integer("max_num_load_retries"),
        load_retry_interval_s=flags.integer("load_retry_interval_micros") / 1e6,
        labels_for_unavailable=flags.on("allow_version_labels_for_unavailable_models"),
        model_roots=settings.model_roots,
        cache_folder=settings.cache_folder,
    )
