"""What is installed: the client alone by default, and an exporter that bakes outside a clone."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*command, folder, clone], check=True, capture_output=True, timeout=120)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_four_packages_and_their_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"client", "exporter", "serving", "wire", "savedmodel_bakery-0.1.0.dist-info"} == {
        name.partition("/")[0] for name in names
    }
    assert {
        "exporter/labels/imagenet.json",
        "exporter/labels/imagenet1001.json",
        "exporter/examples/coffee.png",
        "wire/descriptors.binpb",
        "savedmodel_bakery-0.1.0.dist-info/licenses/LICENSE",
        "savedmodel_bakery-0.1.0.dist-info/licenses/NOTICE",
    } <= set(names)


def test_the_base_install_is_the_client_without_tensorflow(wheel: Path) -> None:
    metadata = email.message_from_bytes(zipfile.ZipFile(wheel).read("savedmodel_bakery-0.1.0.dist-info/METADATA"))
    base = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert {"click", "grpcio", "ml-dtypes", "numpy", "protobuf", "pybase64", "requests", "tenacity", "tqdm"} == {
        re.split(r"[^A-Za-z0-9-]", need)[0] for need in base
    }


@pytest.mark.timeout(300)
def test_the_wheel_bakes_outside_a_clone(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    where = [sys.executable, "-c", "import exporter, client; print(exporter.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert str(installed / "exporter" / "__init__.py") == found.stdout.strip()
    command = [sys.executable, "-m", "savedmodel_bakery.exporter", "bake", "--model", "efficientnet-lite0"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert "saved_model/efficientnet_lite0/1\n" == ended.stdout
