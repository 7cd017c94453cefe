"""Which server runs: the real tensorflow_model_server where there is one, else the embedded one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from savedmodel_bakery.serving.options.flags import FLAGS, CommandLine, Support
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

BINARY = "tensorflow_model_server"
ENGINES = ("auto", "embedded", BINARY)


def choose_binary(flags: CommandLine) -> str | None:
    """Path of the real server where it should run; None for the embedded one.

    Raises:
        StatusError: the engine is unknown or missing.
    """
    engine = flags.text("engine")
    if engine not in ENGINES:
        raise invalid_argument(f"engine is {engine!r}; allowed are {', '.join(ENGINES)}")
    found = None if engine == "embedded" else shutil.which(BINARY)
    if engine == BINARY and found is None:
        raise StatusError(
            Code.NOT_FOUND,
            f"--engine={BINARY} was asked for, but there is no {BINARY} on the PATH; try --engine=embedded",
        )
    return found


def run_binary(path: str, arguments: Sequence[str], flags: CommandLine) -> None:
    """Become the real server, with every argument but our own.

    Raises:
        StatusError: an argument of ours asks for what it can't do.
    """
    for name in sorted(flags.given - {"engine"}):
        flag = FLAGS[name]
        if flag.extension and flags.values[name] != flag.default:
            raise invalid_argument(
                f"--{name}={flags.values[name]} cannot be honoured by {BINARY}, which always uses {flag.default}; "
                "leave it out, or use --engine=embedded"
            )
    own = tuple(f"--{flag.name}" for flag in FLAGS.values() if flag.extension)
    passed = [argument for argument in arguments if argument.partition("=")[0] not in own]
    os.execv(path, [path, *passed])


def check_embedded(flags: CommandLine) -> list[str]:
    """Names of flags given that the embedded engine passes over.

    Raises:
        StatusError: UNIMPLEMENTED for a flag that would make another server of it, such as TLS.
    """
    passed_over = []
    for name in sorted(flags.given):
        flag = FLAGS[name]
        if flags.values[name] == flag.default:
            continue
        if flag.support is Support.REFUSED:
            raise StatusError(Code.UNIMPLEMENTED, f"--{name} is {flag.support.value}; it needs {BINARY}")
        if flag.support is Support.WITHOUT_EFFECT:
            passed_over.append(name)
    return passed_over
