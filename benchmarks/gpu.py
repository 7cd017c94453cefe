"""Measure the options that matter on a GPU: `python -m benchmarks.gpu`.

Each option is a candidate that differs from `base` in it alone: the device, `--batch-max`, `--precision`, and a step of
`--optimise` that is left out. Prints Markdown and writes results.json. Without a GPU it measures the CPU, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import devices, measure, networks, photos, report
from benchmarks.candidates import CACHE, Candidate, Workshop, results_folder
from savedmodel_bakery.exporter.recipe import OPTIMISATIONS

BASE = "base"
PLACEMENT, BATCHING, PRECISION, STEPS = GROUPS = ("placement", "batching", "precision", "steps")
_NO_GPU = (("CUDA_VISIBLE_DEVICES", "-1"),)
_GROWTH = "gpu_options { allow_growth: true }"  # else the first server would take the memory of all
_BAKE = ("--parity-atol", "1")  # 16 bits change the scores; this benchmark does not judge them


def bakes_of(groups: Sequence[str], batch_sizes: Sequence[int]) -> dict[str, tuple[str, ...]]:
    """Return the options of `bakery bake` by the name of the servable, `BASE` first."""
    bakes: dict[str, tuple[str, ...]] = {BASE: ()}
    if BATCHING in groups:
        bakes |= {f"batch-{size}": ("--batch-max", str(size)) for size in batch_sizes}
    if PRECISION in groups:
        bakes |= {name: ("--precision", name) for name in ("bfloat16", "float16")}
    if STEPS in groups:
        for step in OPTIMISATIONS:
            others = ",".join(other for other in OPTIMISATIONS if other != step)
            bakes[f"without-{step}"] = ("--optimise", others)
        bakes["without-steps"] = ("--optimise", "none")
    return {name: (*options, *_BAKE) for name, options in bakes.items()}


def candidates_of(
    bakes: dict[str, tuple[str, ...]], groups: Sequence[str], session_config: Path
) -> dict[str, Candidate]:
    """Return a server per bake, and with the group `placement` one of `BASE` that sees no GPU."""
    flags = (f"--tensorflow_session_config_file={session_config}",)
    candidates = {
        name: Candidate(" ".join(options[: -len(_BAKE)]) or "the default options", "grpc", name, flags=flags)
        for name, options in bakes.items()
    }
    if PLACEMENT in groups:
        candidates["on-cpu"] = Candidate(
            "the default options, on the CPU", "grpc", BASE, flags=flags, variables=_NO_GPU
        )
    return candidates


def run(
    workshop: Workshop,
    groups: Sequence[str],
    log: Callable[[str], None],
    *,
    photo: str,
    callers: Sequence[int],
    rounds: int,
    seconds: float,
    images: int,
) -> dict[str, Any]:
    """Measure `BASE` in a process of its own, then the servers of all bakes in turns.

    Returns:
        The input of `benchmarks.report`, ready for JSON, and in `devices` what `benchmarks.devices` measured.
    """
    version = workshop.servable(BASE) / "1"
    alone = {}
    for name, allow_growth in (("as needed", True), ("nearly all", False)):
        alone[name] = devices.measure(
            version, photos.make(photo), images=images, rounds=rounds, allow_growth=allow_growth
        )
        log(f"{name}: {alone[name]}")
    session_config = workshop.folder / "session.config"
    session_config.write_text(_GROWTH)
    candidates = candidates_of(dict(workshop.bakes), groups, session_config)
    plan = measure.Plan(candidates, [photo], sorted(callers), rounds, seconds, BASE)
    return measure.run(plan, workshop, log) | {"devices": alone, "images": images}


def markdown(document: dict[str, Any]) -> str:
    """Return the figures of the servers, then those of the process."""
    gpu = document["machine"].get("GPU")
    return (
        f"{report.markdown(document)}\n"
        f"### A request with {document['images']} photos, in one process\n\n"
        f"{f'On {gpu}.' if gpu else 'No GPU was found: these are figures of the CPU.'}\n\n"
        f"{devices.table(document['devices'])}\n"
    )


@click.command()
@click.option("--network", type=click.Choice(list(networks.CHOICES)), default="efficientnet-lite0", show_default=True)
@click.option("--only", multiple=True, type=click.Choice(GROUPS), help="Group; repeatable.  [default: all]")
@click.option(
    "--batch-max", "batch_sizes", multiple=True, type=click.IntRange(1, 4096), default=[4, 8, 16, 32, 64],
    show_default=True, help="Sizes of the group batching.",
)  # fmt: skip
@click.option("--photo", type=click.Choice(list(photos.SIZES)), default="small", show_default=True)
@click.option("--callers", multiple=True, type=click.IntRange(1, 256), default=[1, 8, 64], show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Turns of each candidate.")
@click.option("--seconds", type=click.FloatRange(0.1), default=6.0, show_default=True, help="Duration of a turn.")
@click.option("--images", type=click.IntRange(1), default=64, show_default=True, help="Photos of a request to BASE.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the results, empty or new.  [default: .cache/bench/results/gpu]",
)
def main(
    network: str,
    only: tuple[str, ...],
    batch_sizes: tuple[int, ...],
    photo: str,
    callers: tuple[int, ...],
    rounds: int,
    seconds: float,
    images: int,
    out: Path | None,
) -> None:
    """Measure the options that matter on a GPU."""
    folder = results_folder(out, "gpu")
    groups = only or GROUPS
    workshop = Workshop(CACHE, folder, network, bakes_of(groups, batch_sizes))
    document = run(
        workshop,
        groups,
        lambda line: click.echo(line, err=True),
        photo=photo,
        callers=callers,
        rounds=rounds,
        seconds=seconds,
        images=images,
    )
    (folder / "results.json").write_text(json.dumps(document, indent=1))
    click.echo(markdown(document))
    click.echo(folder / "results.json", err=True)


if __name__ == "__main__":
    main()
