"""`bakery token`: makes tokens for the file that `--auth_tokens_file` names."""

from __future__ import annotations

import math
from pathlib import Path

import click

from savedmodel_bakery.groups import FloatRange, Group
from savedmodel_bakery.serving.access import tokens
from savedmodel_bakery.serving.access.tokens import Role, TokensError

EXAMPLES = """
\b
Examples:
  bakery token new shop --model flowers --file tokens.toml > shop.token
  bakery token new prometheus --role metrics
  bakery token new operator --role admin --role metrics
"""


@click.group(cls=Group, epilog=EXAMPLES)
def cli() -> None:
    """Make tokens for the callers of a server."""


@cli.command(epilog=EXAMPLES, context_settings={"show_default": True})
@click.argument("name")
@click.option(
    "--role",
    "roles",
    type=click.Choice([role.value for role in Role]),
    multiple=True,
    default=(Role.PREDICT.value,),
    help="What the token permits. Repeatable.",
)
@click.option(
    "--model",
    "models",
    metavar="NAME",
    multiple=True,
    show_default="all",
    help="Model that the token covers. Repeatable.",
)
@click.option(
    "--requests-per-second", type=FloatRange(min=0, min_open=True), show_default="no limit", help="Limit of calls."
)
@click.option(
    "--rows-per-second", type=FloatRange(min=0, min_open=True), show_default="no limit", help="Limit of rows."
)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Tokens file to append the entry to; it is made if it does not exist.",
)
def new(
    name: str,
    roles: tuple[str, ...],
    models: tuple[str, ...],
    requests_per_second: float | None,
    rows_per_second: float | None,
    path: Path | None,
) -> None:
    """Make a token and print it; it can't be shown again.

    NAME identifies the caller in the tokens file and in messages. The entry for the file contains the hash of the token
    only. Without --file, it is printed after the token.
    """
    if models and Role.PREDICT.value not in roles:
        raise click.UsageError("--model has no effect without --role predict")
    secret = tokens.make_secret()
    try:
        token = tokens.Token(
            tokens.check_name(name),
            tokens.hash_secret(secret),
            frozenset(map(Role, roles)),
            frozenset(models) or None,
            _number(requests_per_second),
            _number(rows_per_second),
        )
        entry = tokens.format_token(token)
        if path:
            _append(path, entry)
    except TokensError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    click.echo(secret)
    if path:
        click.echo(f"Added {name} to {path}", err=True)
    else:
        click.echo(f"\n{entry}", nl=False)


def _append(path: Path, entry: str) -> None:
    """Append an entry to a tokens file, unless the file is invalid or has a token of this name."""
    try:
        content = path.read_text(encoding="utf-8") if path.exists() else ""
        addition = f"\n{entry}" if content else entry
        tokens.parse_tokens(content + addition)
    except ValueError as error:
        raise TokensError(f"{path}: {error}") from error
    with path.open("a", encoding="utf-8") as file:
        file.write(addition)


def _number(value: float | None) -> float | None:
    """Return 5 for 5.0, which looks better in the file."""
    if value is not None and not math.isfinite(value):
        raise click.UsageError(f"invalid limit {value}: must be a finite number; without the option there is no limit")
    return int(value) if value is not None and value.is_integer() else value
