"""Compare ways to serve one network: `python -m benchmarks`.

Prints Markdown, and writes results.json, results.md and results.svg beside the logs. `python -m benchmarks.publish`
copies such results into the documentation.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarks import measure, networks, photos, report
from benchmarks.candidates import CACHE, CANDIDATES, Workshop, results_folder


@click.command()
@click.option("--network", type=click.Choice(list(networks.CHOICES)), default="efficientnet-lite0", show_default=True)
@click.option(
    "--only", multiple=True, type=click.Choice(list(CANDIDATES)), help="Candidate; repeatable.  [default: all]"
)
@click.option("--against", type=click.Choice(list(CANDIDATES)), default="baseline", show_default=True)
@click.option(
    "--photos", "sizes", multiple=True, type=click.Choice(list(photos.SIZES)), help="Photo; repeatable.  [default: all]"
)
@click.option("--callers", multiple=True, type=click.IntRange(1, 256), default=[1, 8, 32], show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Turns of each candidate.")
@click.option("--seconds", type=click.FloatRange(0.1), default=6.0, show_default=True, help="Duration of a turn.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the results, empty or new.  [default: .cache/bench/results/…]",
)
def main(
    network: str,
    only: tuple[str, ...],
    against: str,
    sizes: tuple[str, ...],
    callers: tuple[int, ...],
    rounds: int,
    seconds: float,
    out: Path | None,
) -> None:
    """Compare ways to serve one network."""
    folder = results_folder(out, network)
    baselines = {CANDIDATES[name].against or against for name in only}
    chosen = {name: CANDIDATES[name] for name in CANDIDATES if not only or name in (*only, *baselines)}
    plan = measure.Plan(chosen, sizes or tuple(photos.SIZES), sorted(callers), rounds, seconds, against)
    document = measure.run(plan, Workshop(CACHE, folder, network), lambda line: click.echo(line, err=True))
    (folder / "results.json").write_text(json.dumps(document, indent=1))
    (folder / "results.md").write_text(report.markdown(document))
    report.draw(document, folder / "results.svg", callers=8 if 8 in callers else max(callers))
    click.echo(report.markdown(document))
    click.echo(folder / "results.json", err=True)


if __name__ == "__main__":
    main()
