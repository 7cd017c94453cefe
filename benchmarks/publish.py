"""Put results into the documents: README's tables, docs/benchmark.md and docs/benchmark.svg.

    python -m benchmarks.publish RESULTS.json [RESULTS.json …]

README shows the first file's tables at eight callers and its picture; docs/benchmark.md has all of every file.
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
HEAD = """# Ways of serving one network

Written by `python -m benchmarks.publish` from what `make bench` measured. Every contestant serves the same weights, is
sent the same photo over loopback, and has each answer checked. CPU and memory are those of the server's whole process
tree; memory is the peak in the first round, counting once what processes map from the same files.
"""


def replace_between_marks(text: str, content: str) -> str:
    """The text with other content between its two marks.

    Raises:
        ValueError: the marks are not there once each, in their order.
    """
    found = re.fullmatch(f"(.*{BEGIN}\n).*(\n{END}.*)", text, re.DOTALL)
    if found is None or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"the text lacks {BEGIN} and {END}, once each")
    return f"{found[1]}\n{content}\n{found[2]}"


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--clone", default=CLONE, type=click.Path(path_type=Path), help="Where README.md and docs/ are.")
def main(files: tuple[Path, ...], clone: Path) -> None:
    """Put results into the documents."""
    documents: list[dict[str, Any]] = [json.loads(file.read_text()) for file in files]
    readme = clone / "README.md"
    readme.write_text(replace_between_marks(readme.read_text(), report.summary(documents[0], callers=CALLERS)))
    (clone / "docs" / "benchmark.md").write_text("\n".join([HEAD, *map(report.markdown, documents)]))
    report.draw(documents[0], clone / "docs" / "benchmark.svg", callers=CALLERS)


if __name__ == "__main__":
    main()
