"""The server's command line; texts, streams and exit codes are tensorflow_model_server's.

The engine is the real tensorflow_model_server if it is on the PATH, otherwise the embedded server.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import NoReturn

from savedmodel_bakery import log, tracing
from savedmodel_bakery.exits import FAILED, exit_if_output_fails, run_command
from savedmodel_bakery.extras import MissingPackageError, naming_extras
from savedmodel_bakery.serving import process
from savedmodel_bakery.serving.clouds import vertex
from savedmodel_bakery.serving.options import flags
from savedmodel_bakery.serving.options.config_files import TextFormatError
from savedmodel_bakery.serving.runtimes import import_tensorflow
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_BINARY = "tensorflow_model_server"
_ENGINES = ("auto", "embedded", _BINARY)
_NOT_PASSED_ON = {"engine", "allow_unknown_flags"}
"""Extensions that never contradict what the real server does."""
_PROXY_FLAGS = ("auth_tokens_file", "rest_ssl_config_file", "allow_plaintext_rest")
"""Flags whose purpose a proxy in front of the real server can serve."""
_FAILURE = 255  # the real server exits with -1
_FLUSH_S = 2.0

logger = logging.getLogger(__name__)

# Set before gRPC is first used. The thread that dispatches calls then also reads the sockets, instead of being woken by
# another thread for each call. That saves 0.09 ms and a sixth of the CPU time of a tiny call (grpcio 1.85).
_GRPC_EXPERIMENTS = "-event_engine_listener"


@exit_if_output_fails()
def main(arguments: Sequence[str] | None = None, *, program: str) -> None:
    """Serve until stopped; exit 0 after SIGTERM, 255 if the start fails. `amqp` has its own exit codes."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] == ["amqp"]:
        from savedmodel_bakery.serving.commands import amqp

        sys.exit(run_command(amqp.cli, arguments[1:], prog_name=f"{program} amqp"))
    log.configure(logging.INFO, log.SERVER_FORMAT)
    try:
        arguments = [*vertex.make_flags(os.environ), *arguments]  # the last one of a flag counts
        command_line = flags.parse(arguments)
    except StatusError as error:
        _fail(str(error))
    except flags.FlagError as error:
        _print_error(str(error))
        print(flags.usage(program), end="", flush=True)
        sys.exit(_FAILURE)
    if command_line.on("version"):
        print(f"TensorFlow ModelServer: {metadata.version('savedmodel-bakery')} (savedmodel-bakery)", flush=True)
        # The distribution may be tensorflow-cpu, or another build.
        builds = metadata.packages_distributions().get("tensorflow")
        print(f"TensorFlow Library: {metadata.version(builds[0]) if builds else 'not installed'}", flush=True)
        return
    if command_line.unknown == "--help":
        print(f"{flags.usage(program)}\nsee also: {program} amqp --help", flush=True)
        sys.exit(_FAILURE)
    try:
        _run_binary_if_chosen(arguments, command_line)
        if command_line.unknown is not None:
            _handle_unknown(command_line, program)
        serve_embedded(command_line)
    except MissingPackageError as error:
        _fail(f"UNIMPLEMENTED: {error}")
    except StatusError as error:
        if isinstance(error, TextFormatError):
            _print_error(error.reason)
        _fail(str(error))


def serve_embedded(
    command_line: flags.CommandLine,
    *,
    model: ModelConfig | None = None,
    require_rest: bool = False,
    on_ready: Callable[[], None] | None = None,
) -> NoReturn:
    """Run the embedded server until SIGTERM or SIGINT, then exit with 0.

    `model` is served instead of the models of the flags; its base path is not checked again. With `require_rest`,
    fails if the REST port can't be opened; by default only gRPC runs then. `on_ready` is called once, when the models
    are loaded and the ports are open.
    """
    from savedmodel_bakery.serving.models.buckets import check_reachable
    from savedmodel_bakery.serving.options.settings import check_flags, read_settings, warn_if_exposed

    process.use_system_allocator()
    signals = process.StopSignals(partial(_exit, 0))  # until the server can stop in order
    command_line = _with_local_model(command_line)
    check_flags(command_line)
    ignored = _ignored_flags(command_line)
    settings = read_settings(command_line)
    if model is None:
        check_reachable(settings.models or {})
    else:
        settings = replace(settings, models={model.name: model})
    warn_if_exposed(command_line)
    for name in ignored:
        logger.warning("--%s has no effect in the embedded engine", name)
    os.environ.setdefault("GRPC_EXPERIMENTS", _GRPC_EXPERIMENTS)
    try:
        with naming_extras("the embedded engine", "serve"):
            tracing.configure()
            import_tensorflow()
            from savedmodel_bakery.serving import server

        server.serve(command_line, settings, signals, require_rest=require_rest, on_ready=on_ready)
    except BrokenPipeError:  # nobody reads what on_ready prints
        _exit(FAILED)  # now, because the threads of the server may crash while Python ends
    except BaseException:
        signals.action = partial(_exit, FAILED)  # the threads of the server may keep the process from ending
        raise
    _exit(0)


def _with_local_model(command_line: flags.CommandLine) -> flags.CommandLine:
    """Return the flags with a local copy of the model if it is that of AIP_STORAGE_URI."""
    url = command_line.text("model_base_path")
    if not url or url != os.environ.get(vertex.STORAGE_URI) or command_line.text("model_config_file"):
        return command_line
    return replace(command_line, values={**command_line.values, "model_base_path": vertex.copy_model(url)})


def _run_binary_if_chosen(arguments: Sequence[str], command_line: flags.CommandLine) -> None:
    """Replace this process by the real server, without our extension flags; return if the embedded one is to run."""
    engine = command_line.text("engine")
    if engine not in _ENGINES:
        raise invalid_argument(f"invalid engine {engine!r}: must be one of {', '.join(_ENGINES)}")
    path = shutil.which(_BINARY)
    if engine == _BINARY and path is None:
        raise StatusError(
            Code.NOT_FOUND, f"--engine={_BINARY}, but {_BINARY} is not on the PATH; use --engine=embedded"
        )
    if engine == "embedded" or path is None:
        return
    for name in sorted(command_line.explicit - _NOT_PASSED_ON):
        flag = flags.FLAGS[name]
        if flag.extension and command_line.values[name] != flag.default:
            if name in _PROXY_FLAGS:
                raise invalid_argument(
                    f"--{name} is not supported by {_BINARY}; put a proxy in front of it, such as Envoy with "
                    "deploy/envoy.yaml, or use --engine=embedded"
                )
            always = f", which always uses {flag.default}" if name == "bind_address" else ""
            raise invalid_argument(
                f"--{name}={command_line.values[name]} is not supported by {_BINARY}{always}; remove the flag or use "
                "--engine=embedded"
            )
    extensions = {f"--{flag.name}" for flag in flags.FLAGS.values() if flag.extension}
    os.execv(path, [path, *(argument for argument in arguments if argument.partition("=")[0] not in extensions)])


def _ignored_flags(command_line: flags.CommandLine) -> list[str]:
    """Return the names of the flags without effect in the embedded engine; refuses those that it can't run with."""
    ignored = []
    for name in sorted(command_line.explicit):
        flag = flags.FLAGS[name]
        if command_line.values[name] == flag.default:
            continue
        if flag.support is flags.Support.REFUSED:
            raise StatusError(Code.UNIMPLEMENTED, f"--{name} is {flag.support.value}; it needs {_BINARY}")
        if flag.support is flags.Support.WITHOUT_EFFECT:
            ignored.append(name)
    return ignored


def _handle_unknown(command_line: flags.CommandLine, program: str) -> None:
    """Exit because of an unknown argument, or print it and the usage, as the real server does."""
    if command_line.on("allow_unknown_flags"):
        print(f"unknown argument: {command_line.unknown}\n{flags.usage(program)}", flush=True)
        return
    shown = command_line.unknown or '""'
    _print_error(f"unknown argument: {shown}; {command_line.hint}")
    sys.exit(_FAILURE)


def _print_error(text: str) -> None:
    with suppress(OSError):  # the exit code tells it too
        print(log.escape(text), file=sys.stderr)


def _fail(reason: str) -> NoReturn:
    with suppress(OSError):  # nobody reads the output any more
        print(log.escape(f"Failed to start server. Error: {reason}"), flush=True)
    _exit(_FAILURE)


def _exit(status: int) -> NoReturn:
    """Exit at once, without waiting for threads that still load a model or exceed the grace period."""
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(_FLUSH_S)  # a pipe that nobody reads may be full
    os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # None, if it was closed before the start
            stream.flush()
    tracing.flush()
