"""Compare networks baked in int8 with the same networks in float32, and quantised for OpenVINO.

    python -m benchmarks.int8 --out .cache/bench/int8

Bakes each network twice, and prints one row: the time of the network on one thread, the labels that are the same, the
size of the version, and the memory of a process that has loaded it. Networks without trained weights are
only timed. `make bench-peers` makes the environment of OpenVINO; without it, its columns are empty.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image

from benchmarks import machine, photos, versions
from savedmodel_bakery.storage.versions import sizes

_VIT = "ViT-B/16"
_KERAS = ("MobileNetV2", "ResNet50", "InceptionV3", "EfficientNetB0", "MobileNetV3Large", "ConvNeXtTiny")
NETWORKS: dict[str, tuple[str, ...]] = {
    **{f"EfficientNet-Lite{number}": ("--model", f"efficientnet-lite{number}") for number in range(3)},
    **{name: ("--model", f"keras:{name}", "--weights", "none") for name in _KERAS},
}
NETWORKS[_VIT] = (
    *("--model", "benchmarks.networks:vit_b16", "--labels", "imagenet", "--outputs", "probabilities", "--size", "224"),
    *("--crop", "none", "--resize", "bilinear", "--no-antialias", "--scale", "-1..1", "--channels", "RGB"),
)
"""Options of `bakery bake`."""

_ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
_OPENVINO = Path(".cache/bench/openvino/bin/python")
_EXPORT = """
import sys
import keras
from benchmarks import networks
from savedmodel_bakery.exporter.sources import efficientnet_lite
name, folder = sys.argv[1:]
if name.startswith("EfficientNet-Lite"):
    model = efficientnet_lite.load(int(name[-1]))
else:
    model = networks.vit_b16() if name == "ViT-B/16" else getattr(keras.applications, name)(weights=None)
model.export(folder, verbose=False)
print(*(size or 224 for size in model.input_shape[1:3]))
"""

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
    openvino = _time_openvino(name, folder / name, calibration)
    return {"network": name, "memory": memory, "sizes": megabytes, "report": report, "openvino": openvino}


def _bake(*options: str) -> None:
    command = [sys.executable, "-m", "savedmodel_bakery.exporter", "bake", *options]
    subprocess.run(command, check=True, env={**os.environ, **_ONE_THREAD})


def _time_openvino(name: str, folder: Path, calibration: Path) -> dict[str, dict[str, float]] | None:
    """Return the times of the network in OpenVINO by precision and size of the batch, in ms per image."""
    if not _OPENVINO.exists():
        return None
    exported = folder / "keras"
    command = [sys.executable, "-c", _EXPORT, name, str(exported)]
    height, width = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-2:])
    images = [np.asarray(Image.open(file).resize((width, height))) for file in sorted(calibration.iterdir())]
    np.save(folder / "images.npy", np.stack(images).astype(np.float32) / 127.5 - 1)
    script = Path(__file__).parent / "peers" / "openvino_int8.py"
    kind = ["transformer"] if name == _VIT else []
    run = subprocess.run(
        [_OPENVINO, script, exported, folder / "images.npy", *kind], check=True, stdout=subprocess.PIPE, text=True
    )
    times: dict[str, dict[str, float]] = json.loads(run.stdout.splitlines()[-1])
    return times


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table."""
    lines = [
        "| network | 1 image: float32 → int8, ms | ratio | OpenVINO, ms | int8 / OpenVINO "
        "| 8 images, each: float32 → int8, ms | ratio | OpenVINO, ms | int8 / OpenVINO | same labels "
        "| probabilities change by, mean (most) | multiplications in int8 | version, MB | memory, MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        report = row["report"]
        cells = [row["network"]]
        for speed in report["speeds"]:
            cells.append(f"{speed['float32_ms']:.1f} → {speed['int8_ms']:.1f}")
            cells.append(f"{speed['int8_ms'] / speed['float32_ms']:.2f}")
            openvino = row["openvino"] and row["openvino"]["int8"][str(speed["batch"])]
            cells += [f"{openvino:.1f}", f"{speed['int8_ms'] / openvino:.2f}"] if openvino else ["", ""]
        if row["network"].startswith("EfficientNet-Lite"):
            cells.append(f"{report['same']:g} of {report['photos']}")
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
