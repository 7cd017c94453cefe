"""Copy results into docs/explanation/speed.md, between their marks, and into docs/images/speed.svg.

    python -m benchmarks.publish RESULTS.json [RESULTS.json …]

Results of `benchmarks` and of `benchmarks.overload` have marks of their own; those without new results stay. The page
shows all tables of all files; the plot shows the first comparison's results for eight callers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from benchmarks import overload_report, report

CLONE = Path(__file__).parent.parent
COMPARISON, OVERLOAD = "benchmark", "overload"
CALLERS = 8


def replace_between_marks(text: str, name: str, content: str) -> str:
    """Return the text with new content between the two marks of this name.

    Raises:
        ValueError: the text does not have both marks, once each and in order.
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    match = re.fullmatch(f"(.*{begin}\n).*(\n{end}.*)", text, re.DOTALL)
    if match is None or text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the text needs the marks {begin} and {end}, once each and in this order")
    return f"{match[1]}\n{content}\n{match[2]}"


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--clone", default=CLONE, type=click.Path(path_type=Path), help="Where docs/ is.")
def main(files: tuple[Path, ...], clone: Path) -> None:
    """Copy results into the documentation."""
    documents: list[dict[str, Any]] = [json.loads(file.read_text()) for file in files]
    comparisons = [document for document in documents if "kind" not in document]
    overloads = [document for document in documents if document.get("kind") == OVERLOAD]
    page = clone / "docs" / "explanation" / "speed.md"
    text = page.read_text()
    if comparisons:
        text = replace_between_marks(text, COMPARISON, "\n".join(map(report.markdown, comparisons)))
        report.draw(comparisons[0], clone / "docs" / "images" / "speed.svg", callers=CALLERS)
    if overloads:
        text = replace_between_marks(text, OVERLOAD, "\n".join(map(overload_report.markdown, overloads)))
    page.write_text(text)


if __name__ == "__main__":
    main()
