"""Source: the folder of a SavedModel, of TensorFlow 1 or 2, with a signature from images to scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources.network import Network, listed, recipe_from_outputs, recipe_from_shape
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch


def read(
    model: str,
    *,
    source_signature: str = "serving_default",
    source_input: str | None = None,
    source_output: str | None = None,
) -> Network:
    """Load the folder, and select a signature, its input and its output."""
    return from_signature(load(model), model, source_signature, source_input, source_output)


def load(path: str, tags: Sequence[str] | None = None) -> Any:
    """Load the graph with these tags from a folder; None for the only one."""
    import tensorflow as tf

    if not any((Path(path) / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        raise SourceError(f"{path} contains no saved_model.pb: pass the folder that does, such as MODEL/1")
    try:
        return tf.saved_model.load(path, tags=tags)
    except Exception as error:  # its loader raises all types of errors
        raise SourceError(f"cannot load the SavedModel in {path}: {error}") from error


def from_signature(loaded: Any, model: str, name: str, input_alias: str | None, output_alias: str | None) -> Network:
    """Return the network of a signature of a loaded SavedModel."""
    if name not in loaded.signatures:
        raise SourceError(
            f'{model} has no signature "{name}"; it has {listed(loaded.signatures)}: select one with --source-signature'
        )
    signature = loaded.signatures[name]
    inputs = signature.structured_input_signature[1]
    owner = f'signature "{name}" of {model}'
    alias = _select("input", input_alias, inputs, owner)
    outputs: Mapping[str, Any] = signature.structured_outputs
    if output_alias is not None:
        outputs = {output_alias: outputs[_select("output", output_alias, outputs, owner)]}
    spec = inputs[alias]
    if spec.dtype.name not in ("float32", "uint8"):
        raise SourceError(
            f'input "{alias}" of {owner} has dtype {spec.dtype.name}: must be float32 or uint8, as the bakery decodes '
            "images before the network"
        )
    recipe = recipe_from_shape(spec.shape.as_list() if spec.shape.rank is not None else None, model)
    if spec.dtype.name == "uint8":
        recipe["scale"] = "0..255"

    def run(images: NormalisedBatch) -> dict[str, NetworkOutput]:
        # Through `loaded`, which keeps the variables alive; a signature alone doesn't.
        answers = loaded.signatures[name](**{alias: images})
        return {output: answers[output] for output in outputs}

    def call(pixels: NormalisedBatch) -> NetworkOutput:
        import tensorflow as tf

        images = tf.saturate_cast(tf.round(pixels), tf.uint8) if spec.dtype == tf.uint8 else pixels
        if spec.shape.rank == 4 and spec.shape[0] == 1:
            answers = tf.map_fn(
                lambda image: {output: row[0] for output, row in run(image[tf.newaxis]).items()},
                images,
                fn_output_signature={
                    output: tf.TensorSpec(value.shape[1:], value.dtype) for output, value in outputs.items()
                },
            )
        else:
            answers = run(images)
        return answers if len(answers) > 1 else next(iter(answers.values()))

    shapes = [tuple(each.shape.as_list()) if each.shape.rank is not None else None for each in outputs.values()]
    shape = shapes[0] if len(shapes) == 1 else None
    return Network(call, {**recipe, **recipe_from_outputs(outputs)}, output_shape=shape)


def _select(kind: str, alias: str | None, choices: Mapping[str, Any], owner: str) -> str:
    """Return the selected input or output, or the only one if none is selected."""
    if alias is None and len(choices) == 1:
        return str(next(iter(choices)))
    if alias is None:
        raise SourceError(f"{owner} has several {kind}s, {listed(choices)}: select one with --source-{kind}")
    if alias not in choices:
        raise SourceError(f'{owner} has no {kind} "{alias}"; it has {listed(choices)}: select one with --source-{kind}')
    return alias
