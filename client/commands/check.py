"""The command `check`: replay the goldens of a version against a live server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savedmodel_bakery.client.commands.options import connection_options, is_set, open_client
from savedmodel_bakery.errors import one_line
from savedmodel_bakery.exits import FAILED, as_usage_error, print_error
from savedmodel_bakery.groups import Command

if TYPE_CHECKING:
    from savedmodel_bakery.client.goldens import Golden

EXAMPLES = """
\b
Examples:
  bakery check saved_model/flowers/1
  bakery check saved_model/flowers/1 --format GRPC -t models.example --json

\b
Exit codes: 0 all responses agree, 1 a response differs or was refused, 2 wrong usage, 3 cannot connect,
130 interrupted.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("version_folder", metavar="PATH", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per request.")
@connection_options
@click.pass_context
def check(context: click.Context, version_folder: Path, as_json: bool) -> None:
    """Check that a server responds as when the version was baked.

    PATH is the folder of a baked version; its goldens are sent to the server. Uses both gRPC and REST unless --format
    or the target's scheme selects one; the v2 protocol has no Classify and Regress, so their goldens are left out. The
    default model is the one that was baked, and the default version is the name of the folder.
    """
    from savedmodel_bakery.client.goldens import GoldensError, read_goldens, replay
    from savedmodel_bakery.client.servers import find_scheme

    with as_usage_error(GoldensError):
        goldens = read_goldens(version_folder)
    overrides: dict[str, Any] = {} if is_set(context, "model") else {"model": goldens.model}
    folder_name = version_folder.resolve().name
    if not is_set(context, "version") and not is_set(context, "label") and folder_name.isdecimal():
        overrides["version"] = int(folder_name)
    if is_set(context, "transport"):
        transports = [context.obj["transport"]]
    else:
        with as_usage_error(ValueError):
            scheme = find_scheme(context.obj["target"])
        transports = [scheme.transport] if scheme else ["grpc", "rest"]
    differing = total = 0
    for transport in transports:
        with open_client(context, transport=transport, **overrides) as client:
            for golden in goldens.requests:
                if golden.has_examples and transport in ("v2", "v2-grpc"):
                    continue
                differences = replay(golden, client, goldens.tolerances)
                total += 1
                differing += bool(differences)
                click.echo((_json if as_json else _line)(transport, golden, differences))
    print_error(f"{total - differing} of {total} responses agree")
    context.exit(FAILED if differing else 0)


def _line(transport: str, golden: Golden, differences: Sequence[str]) -> str:
    result = one_line("; ".join(differences)) if differences else "agrees"
    return f"{transport}\t{golden.signature}\t{golden.number}\t{result}"


def _json(transport: str, golden: Golden, differences: Sequence[str]) -> str:
    fields = {
        "transport": transport,
        "signature": golden.signature,
        "number": golden.number,
        "agrees": not differences,
        "differences": list(differences),
    }
    return json.dumps(fields, ensure_ascii=False)
