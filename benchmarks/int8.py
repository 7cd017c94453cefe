"""Compare networks baked in int8 with the same networks in float32.

    python -m benchmarks.int8 --out .cache/bench/int8

Bakes each network twice, and prints one row: the time of the network, the labels that are the same, the size of the
version, and the memory of a process in which all signatures have run. Networks without trained weights are only timed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, photos, versions
from savedmodel_bakery.storage.versions import sizes

_KERAS = ("MobileNetV2", "ResNet50", "InceptionV3")
NETWORKS = {f"EfficientNet-Lite{number}": ("--model", f"efficientnet-lite{number}") for number in range(3)} | {
    name: ("--model", f"keras:{name}", "--weights", "none") for name in _KERAS
}
"""Options of `bakery bake`."""

_CALLS = 3


def compare(name: str, folder: Path, calibration: Path, evaluation: Path | None) -> dict[str, Any]:
    """Bake a network twice, and return its row."""
    int8 = ["--precision", "int8", "--calibration", str(calibration), "--min-agreement", "0"]
    if evaluation is not None:
        int8 += ["--photos", str(evaluation)]
    paths = {"float32": folder / name / "float32" / "1", "int8": folder / name / "int8" / "1"}
    for precision, options in (("float32", []), ("int8", int8)):
        if not paths[precision].is_dir():
            _bake(*NETWORKS[name], "--out", str(folder / name), "--name", precision, *options)
    rows = versions.measure(paths, photos.make("small"), rounds=_CALLS, calls=1)
    memory = {precision: rows[precision][0]["memory"] for precision in paths}
    megabytes = {precision: sum(sizes(path).values()) / 1e6 for precision, path in paths.items()}
    report = json.loads((paths["int8"] / "assets.extra" / "parity.json").read_text())["int8"]
    return {"network": name, "memory": memory, "sizes": megabytes, "report": report}


def _bake(*options: str) -> None:
    subprocess.run([sys.executable, "-m", "savedmodel_bakery.exporter", "bake", *options], check=True)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table."""
    lines = [
        "| network | batch of 1, ms per image | faster by | batch of 8, ms per image | faster by | same labels "
        "| probabilities change by, mean (most) | multiplications in int8 | version, MB | memory, MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        report = row["report"]
        cells = [row["network"]]
        for speed in report["speeds"]:
            cells.append(f"{speed['float32_ms']:.1f} → {speed['int8_ms']:.1f}")
            cells.append(f"{speed['float32_ms'] / speed['int8_ms']:.1f}")
        if row["network"].startswith("EfficientNet-Lite"):
            cells.append(f"{report['same']} of {report['photos']}")
            cells.append(f"{report['mean_change']:.3f} ({report['max_change']:.2f})")
        else:
            cells += ["not trained", ""]
        cells.append(f"{report['quantised_share']:.1%}")
        cells += [f"{values['float32']:.0f} → {values['int8']:.0f}" for values in (row["sizes"], row["memory"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(NETWORKS)), help="Network; repeatable.  [default: all]")
@click.option(
    "--calibration",
    type=click.Path(path_type=Path, exists=True),
    help="Photos to calibrate with.  [default: parts of the example photos]",
)
@click.option(
    "--photos",
    "evaluation",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Photos to compare the labels on.  [default: some of those to calibrate with]",
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder for the versions.")
def main(only: tuple[str, ...], calibration: Path | None, evaluation: Path | None, out: Path) -> None:
    """Compare networks baked in int8 with the same networks in float32."""
    description = machine.describe()
    if calibration is None:
        photos.write_calibration(calibration := out / "calibration")
    rows = [compare(name, out.resolve(), calibration, evaluation) for name in only or NETWORKS]
    (out / "results.json").write_text(json.dumps({"machine": description, "rows": rows}, indent=1))
    click.echo(", ".join(f"{name} {value}" for name, value in description.items()) + "\n")
    click.echo(table(rows))


if __name__ == "__main__":
    main()
