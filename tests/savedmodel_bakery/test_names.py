"""The public names, which are imported on first use."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import savedmodel_bakery


def test_the_public_names_are_exactly_these() -> None:
    expected = [
        "AccessDeniedError", "AmqpClient", "AsyncAmqpClient", "AsyncClient", "BakeError", "Box", "Classification",
        "Client", "ClientError", "ConnectionFailedError",
        "DeadlineExceededError", "Detections", "Embedding", "Heads", "InvalidResponseError", "Keypoint", "Keypoints",
        "LabelError", "LocalTransport", "ParityError", "Picture", "Prediction", "PublishError", "Recipe",
        "RecipeError", "Regression", "RequestRefusedError", "ScoredLabel",
        "Segmentation", "SourceError", "Tag", "Tags", "Tensors", "Tls", "TlsHandshakeError", "VerificationError",
        "VersionStatus", "__version__", "bake", "to_srgb",
    ]  # fmt: skip
    assert expected == sorted(savedmodel_bakery.__all__)
    assert set(expected) <= set(dir(savedmodel_bakery))


@pytest.mark.parametrize("name", savedmodel_bakery.__all__)
def test_each_name_can_be_imported(name: str) -> None:
    assert getattr(savedmodel_bakery, name) is not None


def test_every_exception_ends_in_error() -> None:
    values = (getattr(savedmodel_bakery, name) for name in savedmodel_bakery.__all__)
    exceptions = [value.__name__ for value in values if isinstance(value, type) and issubclass(value, Exception)]
    assert len(exceptions) >= 12
    assert [] == [name for name in exceptions if not name.endswith("Error")]


def test_version_is_that_of_the_distribution() -> None:
    assert version("savedmodel-bakery") == savedmodel_bakery.__version__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'savedmodel_bakery' has no attribute 'Clint'"):
        _ = savedmodel_bakery.Clint


def test_importing_the_package_imports_no_dependency() -> None:
    program = "import sys; before = set(sys.modules); import savedmodel_bakery; print(*set(sys.modules) - before)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    top_levels = {name.partition(".")[0] for name in output.split()}
    assert {"savedmodel_bakery"} == top_levels - set(sys.stdlib_module_names)
