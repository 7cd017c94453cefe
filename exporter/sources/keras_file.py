"""Source: a `.keras` or `.h5` file."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.sources.network import Network, SourceOptions, of_keras_model

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
    _check_container(Path(model))
    import keras

    try:
        loaded = keras.saving.load_model(model, compile=False, safe_mode=True)
    except Exception as error:  # Keras lets every kind of error through
        saved_by = _keras_version(Path(model))
        advice = ""
        if saved_by.startswith("2."):
            advice = (
                f"; it was saved by Keras {saved_by}: load it with the package tf-keras, "
                'tf_keras.models.load_model(…).export("FOLDER"), and bake --model FOLDER'
            )
        raise SourceError(f"Keras {keras.__version__} cannot load {model}: {error}{advice}") from error
    return of_keras_model(loaded, model)


def _check_container(path: Path) -> None:
    """Refuse a file that isn't what its name says; Keras would say that it isn't there."""
    import h5py

    contents = {".keras": zipfile.is_zipfile(path), ".h5": bool(h5py.is_hdf5(path))}
    wanted = path.suffix.lower()
    actual = next((suffix for suffix, found in contents.items() if found), None)
    if actual is None:
        raise SourceError(f"{path} is damaged, or no {wanted} file")
    if actual != wanted:
        raise SourceError(f"{path} is a {actual} file by its content; give it that ending")


def _keras_version(path: Path) -> str:
    """The version of Keras that saved the file, as it says; empty where it doesn't."""
    import h5py

    try:
        if path.suffix.lower() == ".keras":
            with zipfile.ZipFile(path) as archive:
                return str(json.loads(archive.read("metadata.json"))["keras_version"])
        with h5py.File(path) as file:
            return str(file.attrs["keras_version"])
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile):  # damaged, or it says nothing
        return ""
