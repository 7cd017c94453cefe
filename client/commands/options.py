"""The connection options, which several commands share, and the clients that they describe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from savedmodel_bakery.client.credentials import read_token
from savedmodel_bakery.client.servers import MAX_TIMEOUT_S, Server, parse_server, select_tls
from savedmodel_bakery.defaults import DEFAULT_MODEL, TOKEN_VARIABLE
from savedmodel_bakery.exits import as_usage_error, print_error
from savedmodel_bakery.groups import FloatRange, Option, option_group
from savedmodel_bakery.wire.amqp import DEFAULT_QUEUE

if TYPE_CHECKING:
    from savedmodel_bakery.client.amqp_clients import AmqpClient
    from savedmodel_bakery.client.client import BaseClient

_WARNED = f"{__name__}.warned"
_SELECTED = f"{__name__}.selected"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def is_set(
    context: click.Context,
    name: str,
    sources: Collection[ParameterSource] = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT),
) -> bool:
    """Return whether a connection option was set on the command line or in the environment, or in `sources` only."""
    return any(each.get_parameter_source(name) in sources for each in (context, context.find_root()))


def open_client(context: click.Context, **overrides: Any) -> BaseClient:
    """Create the client that the connection options describe; the command sets `overrides` itself."""
    from savedmodel_bakery.client.calls import ModelSpec
    from savedmodel_bakery.client.client import BaseClient
    from savedmodel_bakery.client.transports import create_transport

    options = context.obj | overrides
    if options["transport"] == "amqp":
        return open_amqp_client(context, **overrides)
    server = describe_server(context, **overrides)
    with as_usage_error(ValueError):
        spec = ModelSpec(options["model"], options["version"], options["label"])
        if "model" not in overrides:
            spec = replace(spec, name=select_model(context, server))
        return BaseClient(spec, create_transport(server, timeout_s=options["timeout_s"]))


def select_model(context: click.Context, server: Server) -> str:
    """Return the name that `-m` states, else that of the server's only model, and keep it in the options."""
    from savedmodel_bakery.client.transports import find_model

    options = context.obj
    if not is_set(context, "model") and not context.meta.get(_SELECTED):
        with as_usage_error(ValueError):
            options["model"] = find_model(server, timeout_s=options["timeout_s"], argument="-m")
        context.meta[_SELECTED] = True
    name: str = options["model"]
    return name


def describe_server(context: click.Context, **overrides: Any) -> Server:
    """Return the model server that the connection options describe. Warn once if a token would be sent unencrypted."""
    options = context.obj | overrides
    is_stated = "transport" in overrides or is_set(context, "transport")
    with as_usage_error(ValueError):
        server = parse_server(
            options["target"],
            transport=options["transport"] if is_stated else None,
            port=options["port"],
            rest_api_port=options["rest_api_port"],
            tls=select_tls(
                options["target"], is_on=options["tls"], ca=options["ca"], cert=options["cert"], key=options["key"]
            ),
            token=read_token(options["token_file"]),
        )
    if server.exposes_token and not context.meta.get(_WARNED):
        context.meta[_WARNED] = True
        print_error(f"warning: {server.endpoints[0].address} is sent the token without encryption: use --tls")
    return server


def describe_servers(context: click.Context) -> list[Server]:
    """Return the model servers of `model_servers_options`."""
    if context.obj["transport"] not in ("grpc", "rest"):  # an option of a group, before the command
        raise click.UsageError(f"invalid --format {context.obj['transport'].upper()}: must be GRPC or REST")
    targets = context.obj["target"]
    servers = [
        describe_server(context, target=target) for target in ([targets] if isinstance(targets, str) else targets)
    ]
    for address, count in Counter(server.endpoints[0].address for server in servers).items():
        if count > 1:
            raise click.UsageError(f"--target {address} was given {count} times")
    return servers


def open_amqp_client(context: click.Context, **overrides: Any) -> AmqpClient:
    """Create the same for AMQP; an option for model servers is an error."""
    from savedmodel_bakery.client.amqp_clients import AmqpClient

    options = context.obj | overrides
    if options["transport"] != "amqp":
        raise click.UsageError("result queues need --format AMQP")
    for name in ("port", "rest_api_port", "tls", "ca", "cert", "key", "token_file"):
        if is_set(context, name, [ParameterSource.COMMANDLINE]):  # in the environment it may be for other commands
            option = f"--{name.replace('_', '-')} does not apply to --format AMQP"
            raise click.UsageError(f"{option}: add port, TLS and password to --target, a URL")
    names = ("target", "queue", "timeout_s", "model", "version", "label")
    with as_usage_error(ValueError):
        return AmqpClient(**{name: options[name] for name in names})


def _store(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Store a value in the object that the contexts of a group and its command share.

    So an option may precede the command or follow it; on the command line the last value wins.
    """
    options = context.ensure_object(dict)
    name = parameter.name or ""
    if name not in options or context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        options[name] = value.lower() if name == "transport" else value


def _option(*names: str, aliases: tuple[str, ...] = (), **attributes: Any) -> Callable[[_Command], _Command]:
    long_names = [name for name in (*names, *aliases) if name.startswith("--")]
    # Stated explicitly, because click would add the name of the command.
    variables = [f"BAKERY_CLIENT_{name.removeprefix('--').upper().replace('-', '_')}" for name in long_names]
    return click.option(
        *names,
        cls=Option,
        aliases=aliases,
        envvar=list(dict.fromkeys(variables)),
        show_envvar=True,
        expose_value=False,
        is_common=True,
        callback=_store,
        **{"show_default": True, **attributes},
    )


def timeout_option(default_s: float, help_text: str) -> Callable[[_Command], _Command]:
    """Give a command that waits for servers the option `--timeout-seconds`, whose value is passed as `timeout_s`."""
    return click.option(
        "-s",
        "--timeout-seconds",
        "timeout_s",
        cls=Option,
        aliases=("--timeout-second",),
        type=FloatRange(0, MAX_TIMEOUT_S, min_open=True),
        default=default_s,
        show_default=True,
        help=help_text,
    )


def version_options(*, default: str) -> Callable[[_Command], _Command]:
    """Give a command the options that select a version; the help states the default."""
    return option_group(
        _option("--version", type=click.IntRange(min=0), show_default=default, help="Version of the model."),
        _option("--label", metavar="LABEL", help="Version label, instead of --version."),
    )


_PORT = click.IntRange(1, 65535)
_FILE = click.Path(exists=True, dir_okay=False, readable=True)
_endpoint_options = option_group(
    _option("--port", type=_PORT, default=8500, help="gRPC port of the server, for GRPC and V2-GRPC."),
    _option("--rest-api-port", type=_PORT, default=8501, help="HTTP port of the server, for REST and V2."),
    _option("--tls", is_flag=True, show_default=False, help="Encrypt the connection to the model server."),
    _option(
        "--ca", type=_FILE, show_default="public authorities", help="PEM file of the authorities to trust, with TLS."
    ),
    _option("--cert", type=_FILE, help="PEM file of the client's certificate, with TLS."),
    _option("--key", type=_FILE, show_default="in --cert", help="PEM file of its private key."),
    _option(
        "--token-file",
        metavar="FILE",
        help=f"File with the token for the model server. Or set {TOKEN_VARIABLE} to the token. No option takes the "
        "token itself, because other users can see command lines.",
    ),
)


def _format_option(protocols: Sequence[str], help_text: str) -> Callable[[_Command], _Command]:
    return _option(
        "-f",
        "--format",
        "transport",
        type=click.Choice(protocols, case_sensitive=False),
        default="GRPC",
        show_default="that of the target, or GRPC",
        metavar=f"[{'|'.join(protocols)}]",
        help=help_text,
    )


server_options = option_group(
    _format_option(
        ["GRPC", "REST", "V2", "V2-GRPC", "AMQP"],
        "Protocol: the TensorFlow Serving API over gRPC or REST, the v2 protocol (Open Inference Protocol) over HTTP "
        "or gRPC, or AMQP.",
    ),
    _option(
        "-t",
        "--target",
        default="127.0.0.1",
        metavar="[SCHEME://]HOST[:PORT]",
        help="Model server; the scheme https or grpcs selects the protocol with TLS, http or grpc without. Or the AMQP "
        "broker, also as a URL: amqps://USER:PASSWORD@HOST:PORT/VHOST.",
    ),
    _endpoint_options,
    _option("--queue", default=DEFAULT_QUEUE, metavar="NAME", help="Queue of the AMQP workers."),
)
"""Gives a command the options that select a server or a broker."""

model_servers_options = option_group(
    _format_option(["GRPC", "REST"], "Protocol: the TensorFlow Serving API over gRPC or REST."),
    _option(
        "-t",
        "--target",
        multiple=True,
        default=["127.0.0.1"],
        metavar="[SCHEME://]HOST[:PORT]",
        help="Model server, as for the other commands. Repeatable.",
    ),
    _endpoint_options,
)
"""Gives a command the options that select several model servers; see `describe_servers`."""

BRIEF: dict[str, str | None] = {
    "transport": "Protocol: GRPC, REST, V2, V2-GRPC or AMQP.",
    "target": "Model server, by default 127.0.0.1; or the AMQP broker, also as a URL.",
    "model": "Model to call, by default the server's only one.",
    "version": "Version of the model, by default the newest.",
}
"""The common options that `--help` shows, with shorter texts; see `groups.Command`."""

connection_options = option_group(
    server_options,
    _option(
        "-s",
        "--timeout-seconds",
        "timeout_s",
        aliases=("--timeout-second",),
        type=FloatRange(0, MAX_TIMEOUT_S, min_open=True),
        default=30.0,
        help="Time limit of a request, including repeated attempts.",
    ),
    _option(
        "-m",
        "--model",
        "model",
        aliases=("--model-spec-name",),
        default=DEFAULT_MODEL,
        metavar="NAME",
        show_default=f"the server's only model; {DEFAULT_MODEL} if it does not list them",
        help="Model to call.",
    ),
    _option("-n", "--signature-name", "signature", default="serving_default", metavar="NAME", help="Signature to run."),
    version_options(default="the newest"),
)
"""Gives a command the options that `open_client` reads from its context."""
