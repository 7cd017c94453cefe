"""Copy results into docs/explanation/speed.md, between its marks, and into docs/images/speed.svg.

    python -m benchmarks.publish RESULTS.json [RESULTS.json …]

The page shows all tables of all files; the plot shows the first file's results for eight callers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from benchmarks import report

CLONE = Path(__file__).parent.parent
BEGIN, END = "<!-- benchmark -->", "<!-- /benchmark -->"
CALLERS = 8


def replace_between_marks(text: str, content: str) -> str:
    """Return the text with new content between its two marks.

    Raises:
        ValueError: the text does not have both marks, once each and in order.
    """
    match = re.fullmatch(f"(.*{BEGIN}\n).*(\n{END}.*)", text, re.DOTALL)
    if match is None or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"the text needs the marks {BEGIN} and {END}, once each and in this order")
    return f"{match[1]}\n{content}\n{match[2]}"


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--clone", default=CLONE, type=click.Path(path_type=Path), help="Where docs/ is.")
def main(files: tuple[Path, ...], clone: Path) -> None:
    """Copy results into the documentation."""
    documents: list[dict[str, Any]] = [json.loads(file.read_text()) for file in files]
    page = clone / "docs" / "explanation" / "speed.md"
    tables = "\n".join(map(report.markdown, documents))
    page.write_text(replace_between_marks(page.read_text(), tables))
    report.draw(documents[0], clone / "docs" / "images" / "speed.svg", callers=CALLERS)


if __name__ == "__main__":
    main()
