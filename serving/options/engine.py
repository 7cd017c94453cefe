"""Chooses the engine: the real tensorflow_model_server if it is on the PATH, otherwise the embedded server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from savedmodel_bakery.serving.options.flags import FLAGS, CommandLine, Support
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

BINARY = "tensorflow_model_server"
ENGINES = ("auto", "embedded", BINARY)
_NOT_PASSED_ON = {"engine", "allow_unknown_flags"}
"""Extensions that never contradict what the real server does."""
_PROXY_FLAGS = ("auth_tokens_file", "rest_ssl_config_file", "allow_plaintext_rest")
"""Flags whose purpose a proxy in front of the real server can serve."""


def run_binary_if_chosen(arguments: Sequence[str], flags: CommandLine) -> None:
    """Replace this process by the real server, without our extension flags; return if the embedded one is to run.

    Raises:
        StatusError: `--engine` is unknown, the real server is required but not on the PATH, or an extension flag has a
            value that it can't honour.
    """
    engine = flags.text("engine")
    if engine not in ENGINES:
        raise invalid_argument(f"invalid engine {engine!r}: must be one of {', '.join(ENGINES)}")
    path = shutil.which(BINARY)
    if engine == BINARY and path is None:
        raise StatusError(
            Code.NOT_FOUND,
            f"--engine={BINARY}, but {BINARY} is not on the PATH; use --engine=embedded",
        )
    if engine == "embedded" or path is None:
        return
    for name in sorted(flags.explicit - _NOT_PASSED_ON):
        flag = FLAGS[name]
        if flag.extension and flags.values[name] != flag.default:
            if name in _PROXY_FLAGS:
                raise invalid_argument(
                    f"--{name} is not supported by {BINARY}; put a proxy in front of it, such as Envoy with "
                    "deploy/envoy.yaml, or use --engine=embedded"
                )
            always = f", which always uses {flag.default}" if name == "bind_address" else ""
            raise invalid_argument(
                f"--{name}={flags.values[name]} is not supported by {BINARY}{always}; remove the flag or use "
                "--engine=embedded"
            )
    extensions = {f"--{flag.name}" for flag in FLAGS.values() if flag.extension}
    os.execv(path, [path, *(argument for argument in arguments if argument.partition("=")[0] not in extensions)])


def ignored_flags(flags: CommandLine) -> list[str]:
    """Return the names of the flags on the command line that the embedded engine ignores.

    Raises:
        StatusError: UNIMPLEMENTED if the embedded engine can't run with a flag at all, such as Google ALTS.
    """
    ignored = []
    for name in sorted(flags.explicit):
        flag = FLAGS[name]
        if flags.values[name] == flag.default:
            continue
        if flag.support is Support.REFUSED:
            raise StatusError(Code.UNIMPLEMENTED, f"--{name} is {flag.support.value}; it needs {BINARY}")
        if flag.support is Support.WITHOUT_EFFECT:
            ignored.append(name)
    return ignored
