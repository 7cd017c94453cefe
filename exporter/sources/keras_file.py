"""Source: a `.keras` or `.h5` file."""

from __future__ import annotations

from pathlib import Path

from exporter.errors import SourceError
from exporter.sources.network import Network, SourceOptions, of_keras_model

FORM = "the path of a .keras or .h5 file"


def matches(model: str) -> bool:
    """Whether `model` is a path with such an ending."""
    return Path(model).suffix.lower() in (".keras", ".h5")


def read(model: str, options: SourceOptions) -> Network:
    """Load the file without its optimizer, and without running code that it may hold.

    Raises:
        SourceError: it isn't there, or Keras can't load it.
    """
    options.refuse(model)
    if not Path(model).is_file():
        raise SourceError(f"there is no file {model}")
    import keras

    try:
        loaded = keras.saving.load_model(model, compile=False, safe_mode=True)
    except Exception as error:  # Keras lets every kind of error through
        raise SourceError(f"Keras {keras.__version__} cannot load {model}: {' '.join(str(error).split())}") from error
    return of_keras_model(loaded, model)
