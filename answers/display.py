"""Shows results in a REPL, as one line, and in notebooks, as HTML. Does no I/O; pictures need the extra `draw`."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from html import escape

_SHOWN_LINES, _SHOWN_ROWS = 3, 10
_LINE_LENGTH = 60
_PICTURE_SIDE = 640
_BAR = "background:linear-gradient(to right,#9ecae9 {share:.1%},transparent {share:.1%});min-width:8em"


def short_text(title: str, lines: Sequence[str]) -> str:
    """Return the first lines of a result on one line."""
    shown = [" ".join(_cut(line).split("\t")) for line in lines[:_SHOWN_LINES]]
    if others := len(lines) - len(shown):
        shown.append(f"… {others} more")
    return f"<{title}: {'; '.join(shown) or 'none'}>"


def html_table(title: str, lines: Sequence[str], *, score_column: int | None, picture: bytes = b"") -> str:
    """Return the first lines of a result as rows of an HTML table, below a picture, the content of an image file.

    The column with the number `score_column` has bars, if its numbers are scores, 0 to 1.
    """
    rows = [_cut(line).split("\t") for line in lines[:_SHOWN_ROWS]]
    html = "".join(
        f"<tr>{''.join(_cell(cell, is_score=number == score_column) for number, cell in enumerate(row))}</tr>"
        for row in rows
    )
    others = f"<p>… {len(lines) - len(rows)} more</p>" if len(lines) > len(rows) else ""
    image = f'<p><img src="{_data_uri(picture)}" alt="{escape(title)}"></p>' if picture else ""
    return f"<p><b>{escape(title)}</b>{'' if rows else ': none'}</p>{image}<table>{html}</table>{others}"


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_LENGTH else line[: _LINE_LENGTH - 1] + "…"


def _cell(text: str, *, is_score: bool) -> str:
    style = f"{_BAR.format(share=min(max(float(text), 0.0), 1.0))};" if is_score else ""
    return f'<td style="{style}text-align:left">{escape(text)}</td>'


def _data_uri(picture: bytes) -> str:
    """Return a picture as a URI, at most 640 pixels wide and high."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image:
        image.thumbnail((_PICTURE_SIDE, _PICTURE_SIDE))
        file = io.BytesIO()
        image.save(file, "PNG")
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
