"""The workload of the example pipelines: in one graph, as separate calls of their steps, and as ensembles of Triton."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image, ImageDraw

from benchmarks import photos, triton
from benchmarks.processes import Server, Tree, free_port
from benchmarks.workloads import CLONE, TIMEOUT_S, Groups, Settings, Way, client_caller
from savedmodel_bakery import Client
from savedmodel_bakery.answers.images import encode_images
from savedmodel_bakery.client.load.generator import SendCall
from savedmodel_bakery.exporter.pipeline.pipeline_file import Pipeline, Step, read_pipeline_file

_TRITON = CLONE / ".cache" / "bench" / "triton"
_SHAPES = {"red": (0.1, 0.2, 0.3, 0.6), "blue": (0.5, 0.5, 0.9, 0.75)}  # left, top, right and bottom edges


def pipelines(settings: Settings, folder: Path, stack: ExitStack) -> Groups:
    """The pipelines of `examples/pipelines` over gRPC, with the constructed networks of the tests."""
    if not _TRITON.is_dir():
        raise click.ClickException("Triton is not installed; `make bench-peers` installs it")
    photo = photos.make(settings.photo)
    inputs: dict[str, dict[str, np.ndarray]] = {
        "add_sub_mul": {"a": np.array([1, 2, 3, 4], np.float32), "b": np.array([4, 3, 2, 1], np.float32)},
        "shape_colours": encode_images([_draw_shapes(photo)]),
        "two_classifiers": encode_images([photo]),
    }
    # In a process of its own, because TensorFlow's threads would take part in the load.
    command = [sys.executable, "-m", "benchmarks.pipelines", str(folder), *inputs]
    subprocess.run(command, cwd=CLONE, check=True, capture_output=True)
    made = {name: read_pipeline_file(folder / name / f"{name}.toml") for name in inputs}
    config = folder / "models.config"
    config.write_text(_model_config(folder, made.values()))
    server = settings.servers[-1].serve(folder, folder / "server", stack, flags=[f"--model_config_file={config}"])
    ensembles, ensembles_pid = _serve_ensembles(folder, stack)
    return {
        f"{name},": [
            Way("one graph", client_caller(arrays, model=name, port=server.grpc), Tree([server.pid])),
            Way("separate calls", _separate_calls(made[name], arrays, server.grpc), Tree([server.pid])),
            Way(
                "Triton ensemble",
                client_caller(arrays, model=name, transport="v2-grpc", port=ensembles),
                Tree([ensembles_pid]),
            ),
        ]
        for name, arrays in inputs.items()
    }


def _draw_shapes(photo: bytes) -> bytes:
    """Return a photo with a red and a blue rectangle on it."""
    with Image.open(io.BytesIO(photo)) as picture:
        for colour, box in _SHAPES.items():
            edges = [part * side for part, side in zip(box, picture.size * 2, strict=True)]
            ImageDraw.Draw(picture).rectangle(edges, fill=colour)
        content = io.BytesIO()
        picture.save(content, "JPEG")
    return content.getvalue()


def _make(folder: Path, names: Iterable[str]) -> None:
    """Copy examples, make the models of their steps, compose them, and export them to the repository `ensembles`."""
    sys.path.append(str(CLONE / "tests" / "support"))
    import pipeline_steps

    from savedmodel_bakery.exporter.pipeline.check import check_pipeline
    from savedmodel_bakery.exporter.pipeline.compose import compose
    from savedmodel_bakery.exporter.triton.config import Options
    from savedmodel_bakery.exporter.triton.export import export_pipeline

    for name in names:
        with pipeline_steps.example(name, folder):
            getattr(pipeline_steps, name)()
            compose(check_pipeline(read_pipeline_file(Path(f"{name}.toml"))), base_path=Path("saved_model", name))
            export_pipeline(Path(f"{name}.toml"), folder / "ensembles", options=Options())


def _model_config(folder: Path, made: Iterable[Pipeline]) -> str:
    """Return the configuration of a server of all pipelines and of the models of their steps."""
    names = {
        model: folder / pipeline.name / "saved_model" / model
        for pipeline in made
        for model in (pipeline.name, *(step.model.name for step in pipeline.steps))
    }
    models = (
        f'config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}' for name, path in names.items()
    )
    return f"model_config_list {{ {' '.join(models)} }}"


def _serve_ensembles(folder: Path, stack: ExitStack) -> tuple[int, int]:
    """Serve the pipelines as ensembles of Triton; return the gRPC port and the process id."""
    ports = free_port(), free_port(), free_port()
    command = triton.command(_TRITON, folder / "ensembles", folder / "backends", ports=ports)
    server = Server(command, port=ports[1], log=folder / "triton", environment=triton.variables(_TRITON))
    stack.enter_context(server).wait_until_listening()
    return ports[1], server.pid


def _separate_calls(
    pipeline: Pipeline, inputs: Mapping[str, Any], port: int
) -> Callable[[], AbstractContextManager[SendCall]]:
    """Return callers that call the steps one after another, and those that don't need each other at the same time."""
    levels = pipeline.levels()

    @contextmanager
    def open_caller() -> Iterator[SendCall]:
        with ExitStack() as stack:
            clients = {
                step.name: stack.enter_context(Client(model=step.model.name, port=port, timeout_s=TIMEOUT_S))
                for step in pipeline.steps
            }
            threads = stack.enter_context(ThreadPoolExecutor(max(map(len, levels))))

            def call(_: int) -> None:
                tensors = dict(inputs)

                def run(step: Step) -> dict[str, np.ndarray]:
                    outputs = clients[step.name].predict(
                        {alias: tensors[name] for alias, name in step.input_map.items()},
                        signature=step.signature,
                        output_filter=list(step.output_map),
                    )
                    return {name: outputs.arrays[alias] for alias, name in step.output_map.items()}

                for level in levels:
                    for made in (map if len(level) == 1 else threads.map)(run, level):
                        tensors.update(made)

            yield call

    return open_caller


if __name__ == "__main__":
    _make(Path(sys.argv[1]), sys.argv[2:])
