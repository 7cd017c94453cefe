"""Source: the folder of a SavedModel, of TensorFlow 1 or 2, with a signature from an image to numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.sources.network import Network, SourceOptions, check_image_shape

FORM = "the folder of a SavedModel"
_DEFAULT_SIGNATURE = "serving_default"


def matches(model: str) -> bool:
    """Whether `model` is a folder."""
    return Path(model).is_dir()


def read(model: str, options: SourceOptions) -> Network:
    """Load the folder and choose a signature, its input and its output.

    Raises:
        SourceError: it is no SavedModel, or what was chosen isn't there or doesn't take images.
    """
    options.refuse(model, but=("signature", "input", "output"))
    return of_signature(load(model), model, options)


def load(path: str) -> Any:
    """What tf.saved_model.load makes of the folder.

    Raises:
        SourceError: it holds no SavedModel, or a damaged one.
    """
    import tensorflow as tf

    if not any((Path(path) / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        raise SourceError(f"{path} holds no saved_model.pb; give the folder that does, as MODEL/1")
    try:
        return tf.saved_model.load(path)
    except Exception as error:  # its loader lets every kind of error through
        raise SourceError(f"the SavedModel in {path} cannot be loaded: {error}") from error


def of_signature(loaded: Any, model: str, options: SourceOptions) -> Network:
    """The network that a signature of a loaded SavedModel is.

    Raises:
        SourceError: as for `read`.
    """
    name = options.signature or _DEFAULT_SIGNATURE
    signature = _choose("signature", name, dict(loaded.signatures), model)
    inputs = signature.structured_input_signature[1]
    alias = _choose_only("input", options.input, inputs, f'signature "{name}" of {model}')
    output = _choose_only("output", options.output, signature.structured_outputs, f'signature "{name}" of {model}')
    spec = inputs[alias]
    if spec.dtype.name != "float32":
        raise SourceError(
            f'input "{alias}" of signature "{name}" of {model} takes {spec.dtype.name}; allowed is float32: a network '
            "from pixels to classes, not one that decodes images itself"
        )
    known = check_image_shape(spec.shape.as_list() if spec.shape.rank is not None else None, model)

    def call(pixels: Any) -> Any:
        # Through `loaded`, which owns the variables: a signature alone doesn't keep them.
        return loaded.signatures[name](**{alias: pixels})[output]

    return Network(call, known)


def _choose(kind: str, name: str, choices: dict[str, Any], model: str) -> Any:
    if name not in choices:
        raise SourceError(f'{model} has no {kind} "{name}"; it has {_listed(choices)}; choose one with --source-{kind}')
    return choices[name]


def _choose_only(kind: str, wanted: str | None, choices: Any, owner: str) -> str:
    if wanted is None and len(choices) == 1:
        return str(next(iter(choices)))
    if wanted is None or wanted not in choices:
        asked = "several" if wanted is None else f'no "{wanted}"'
        raise SourceError(f"{owner} has {asked} among its {kind}s {_listed(choices)}; choose one with --source-{kind}")
    return wanted


def _listed(names: Any) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))
