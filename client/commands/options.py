"""The options that several subcommands share: whom to ask, and about which images. Must not import anything heavy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from savedmodel_bakery.wire.amqp import DEFAULT_QUEUE

if TYPE_CHECKING:
    from savedmodel_bakery.client.client import Client

_Command = TypeVar("_Command", bound=Callable[..., Any])


def connection_options(command: _Command) -> _Command:
    """Give a command the options that `open_client` reads."""
    for option in reversed(_CONNECTION_OPTIONS):
        command = option(command)
    return command


def image_option(help_text: str) -> Callable[[_Command], _Command]:
    """Give a command `-i`, whose paths come as `images`."""
    return click.option(
        "-i",
        "--image_file",
        "images",
        multiple=True,
        metavar="PATH",
        type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
        help=help_text,
    )


def is_chosen(context: click.Context, name: str) -> bool:
    """Whether a connection option was given by the user, on the command line or in the environment."""
    sources = (context.get_parameter_source(name), context.find_root().get_parameter_source(name))
    return any(source not in (None, ParameterSource.DEFAULT) for source in sources)


def open_client(context: click.Context, **instead: Any) -> Client:
    """Make the client that the options describe; nothing is connected yet.

    Args:
        context: the command's.
        instead: options that the command itself decides on.

    Raises:
        click.UsageError: where they contradict each other or can't be used.
    """
    from savedmodel_bakery.client.client import Client

    arguments = {name: value for name, value in (context.obj | instead).items() if name != "signature"}
    if arguments["transport"] == "amqp":  # whose target holds its port
        for name in ("port", "rest_api_port"):
            if not is_chosen(context, name):
                del arguments[name]
    try:
        return Client(**arguments)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Collect values in the object that a subcommand's context shares with the group's.

    So an option counts wherever it is given, and the one that stands last wins.
    """
    chosen = context.ensure_object(dict)
    name = parameter.name or ""
    if name not in chosen or context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        chosen[name] = value.lower() if name == "transport" else value


def _option(*names: str, **attributes: Any) -> Callable[[_Command], _Command]:
    long_name = next(name for name in names if name.startswith("--"))
    return click.option(
        *names,
        # Named, since click would put a subcommand's own name into it.
        envvar=f"BAKERY_CLIENT_{long_name.removeprefix('--').upper()}",
        show_envvar=True,
        show_default=True,
        expose_value=False,
        callback=_remember,
        **attributes,
    )


_PORT = click.IntRange(1, 65535)
_CONNECTION_OPTIONS = (
    _option(
        "-f",
        "--format",
        "transport",
        type=click.Choice(["GRPC", "REST", "AMQP"], case_sensitive=False),
        default="GRPC",
        metavar="[GRPC|REST|AMQP]",
        help="Protocol to ask with.",
    ),
    _option(
        "-t",
        "--target",
        default="127.0.0.1",
        metavar="HOST[:PORT]",
        help="Where the model server is, or the AMQP broker, which may be a URL: amqps://USER:PASSWORD@HOST:PORT/VHOST.",
    ),
    _option("--port", type=_PORT, default=8500, help="Its gRPC port."),
    _option("--rest_api_port", type=_PORT, default=8501, help="Its REST port."),
    _option("--queue", default=DEFAULT_QUEUE, metavar="NAME", help="Queue of the AMQP broker's workers."),
    _option(
        "-s",
        "--timeout_second",
        "timeout_s",
        type=click.FloatRange(0, 86_400, min_open=True),
        default=30.0,
        help="How long an answer may take.",
    ),
    _option("-m", "--model_spec_name", "model", default="efficientnet_lite0", metavar="NAME", help="Model to ask."),
    _option(
        "-n",
        "--signature_name",
        "signature",
        default="serving_default",
        metavar="NAME",
        help="Signature to run.",
    ),
    _option("--version", type=click.IntRange(min=0), help="Version of the model; else the newest."),
    _option("--label", metavar="LABEL", help="Label of the version, instead of its number."),
)
