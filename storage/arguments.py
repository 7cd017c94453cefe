"""Arguments of commands that name a local folder, or one in a bucket."""

from __future__ import annotations

from typing import Any

import click

from savedmodel_bakery.storage.store import Store, is_url, open_store


class FolderOrUrl(click.Path):
    """A click.Path that converts a URL, such as s3://bucket/models, to a Store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType.convert`."""
        if isinstance(value, Store):
            return value
        if not is_url(value):
            return super().convert(value, param, ctx)
        try:
            return open_store(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
