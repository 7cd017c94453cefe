"""The command `versions`: list the versions of a model."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter.commands.options import CONTEXT, json_option
from savedmodel_bakery.exporter.publish import format_size, published_versions, size_of


@click.command(epilog="\b\nExample:\n  bakery versions saved_model/efficientnet_lite0\n", context_settings=CONTEXT)
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def versions(path: Path, as_json: bool) -> None:
    """List the versions under PATH (OUT/NAME), lowest first."""
    folders = published_versions(path)
    if not folders:
        raise PublishError(f"no versions under {path}: versions are folders named 1, 2, 3 …")
    rows: list[dict[str, Any]] = [
        {
            "version": version,
            "path": str(folder),
            "size_bytes": size_of(folder),
            "published": datetime.fromtimestamp(folder.stat().st_mtime, timezone.utc).isoformat(timespec="seconds"),
        }
        for version, folder in folders.items()
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        click.echo(f"{row['version']}\t{format_size(row['size_bytes'])}\t{row['published']}\t{row['path']}")
