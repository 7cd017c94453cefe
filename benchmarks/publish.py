"""Copy results into the documentation: README's tables, docs/benchmark.md and docs/benchmark.svg.

    python -m benchmarks.publish RESULTS.json [RESULTS.json …]

README shows the first file's plot and its tables for eight callers; docs/benchmark.md shows all tables of all files.
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
HEAD = """# Ways to serve one network

Written by `python -m benchmarks.publish` from the results of `make bench`. Every candidate serves the same weights and
gets the same photo over loopback; each answer is checked. CPU and memory are those of the server's whole process tree.
Memory is the peak in the first round; files that several processes map count once.
"""


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
@click.option("--clone", default=CLONE, type=click.Path(path_type=Path), help="Where README.md and docs/ are.")
def main(files: tuple[Path, ...], clone: Path) -> None:
    """Copy results into the documentation."""
    documents: list[dict[str, Any]] = [json.loads(file.read_text()) for file in files]
    readme = clone / "README.md"
    readme.write_text(replace_between_marks(readme.read_text(), report.summary(documents[0], callers=CALLERS)))
    (clone / "docs" / "benchmark.md").write_text("\n".join([HEAD, *map(report.markdown, documents)]))
    report.draw(documents[0], clone / "docs" / "benchmark.svg", callers=CALLERS)


if __name__ == "__main__":
    main()
