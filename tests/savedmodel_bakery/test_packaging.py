"""The wheel and the sdist: their files, and that the installed package works beside modules with the same names."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import model_makers
import pytest
from server_process import ServerProcess

FOLDERS = ("answers", "client", "exporter", "serving", "storage", "wire")


def build(source: Path, target: str, out: Path) -> Path:
    """Build an sdist or a wheel."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (path,) = out.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(clone, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of programs of a virtual environment with the wheel, beside modules named as our folders.

    The dependencies are those of this environment.
    """
    environment = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True, timeout=120)
    (site_packages,) = environment.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(dependency_paths())
    write_decoys(site_packages)
    return environment / "bin"


def dependency_paths() -> str:
    """One line per folder of this environment that has installed packages."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders |= {path for path in sys.path if path.endswith("site-packages")}
    return "\n".join(sorted(folders))


def write_decoys(folder: Path) -> None:
    """Write modules named as our folders, which end a program that imports them."""
    for name in FOLDERS:
        (folder / f"{name}.py").write_text("raise SystemExit(f'{__name__} was imported')\n")


def run(command: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert 0 == ended.returncode, ended.stderr
    return ended.stdout


def test_the_wheel_has_one_package_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"savedmodel_bakery", "savedmodel_bakery-0.2.0.dist-info"} == {name.partition("/")[0] for name in names}
    inside = {name.removeprefix("savedmodel_bakery/") for name in names if name.startswith("savedmodel_bakery/")}
    assert {"__init__.py", "__main__.py", "command.py", "py.typed"} <= inside
    assert {"exporter/resources/labels/imagenet.json", "exporter/resources/labels/imagenet1001.json"} <= inside
    assert {
        "exporter/resources/examples/coffee.png",
        "serving/static/openapi.json",
        "wire/descriptors.binpb",
    } <= inside
    scripts = tuple(f"exporter/resources/examples/{folder}" for folder in ("train", "pipelines"))
    assert not any(name.startswith(scripts) for name in inside)
    assert {f"{folder}/__init__.py" for folder in FOLDERS} <= inside
    licenses = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
    assert {"LICENSE", "NOTICE"} == licenses
    assert len(names) == len(set(names))


def test_the_wheel_has_all_committed_files_of_the_package(clone: Path, wheel: Path) -> None:
    command = ["git", "ls-files", *FOLDERS, "savedmodel_bakery/*.py", "savedmodel_bakery/py.typed"]
    committed = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True).stdout.split()
    expected = {f"savedmodel_bakery/{name.removeprefix('savedmodel_bakery/')}" for name in committed}
    assert set() == expected - set(zipfile.ZipFile(wheel).namelist())


def test_a_wheel_built_from_the_sdist_has_the_same_files(clone: Path, wheel: Path, tmp_path: Path) -> None:
    sdist = build(clone, "sdist", tmp_path / "sdist")
    (tmp_path / "source").mkdir()
    subprocess.run(["tar", "--extract", "--file", sdist, "--directory", tmp_path / "source"], check=True)
    again = build(tmp_path / "source" / "savedmodel_bakery-0.2.0", "wheel", tmp_path / "wheel")
    files, files_again = (
        {name: zipfile.ZipFile(path).read(name) for name in zipfile.ZipFile(path).namelist()} for path in (wheel, again)
    )
    assert files == files_again


def test_the_base_install_is_the_client_without_tensorflow(wheel: Path) -> None:
    metadata = email.message_from_bytes(zipfile.ZipFile(wheel).read("savedmodel_bakery-0.2.0.dist-info/METADATA"))
    base = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert {
        "click",
        "grpcio",
        "ml-dtypes",
        "numpy",
        "protobuf",
        "pybase64",
        "python-rapidjson",
        "requests",
        "tomli",
        "tqdm",
    } == {re.split(r"[^A-Za-z0-9-]", need)[0] for need in base}


def test_modules_with_our_folders_names_do_not_get_in_the_way(installed: Path, tmp_path: Path) -> None:
    """In the working directory and in site-packages."""
    write_decoys(tmp_path)
    model_makers.sizing(tmp_path / "labels")
    (tmp_path / "photo.jpg").write_bytes(b"a photo")
    bakery, python = str(installed / "bakery"), str(installed / "python")
    program = "from savedmodel_bakery import Client; print(Client.__module__)"
    assert "savedmodel_bakery.client.client\n" == run([python, "-c", program], tmp_path)
    assert "Usage: bakery ask" in run([bakery, "ask", "--help"], tmp_path)
    assert "Usage: python -m savedmodel_bakery ask" in run([python, "-m", "savedmodel_bakery", "ask", "-h"], tmp_path)
    assert "Usage: python -m " in run([python, "-m", "savedmodel_bakery.client", "--help"], tmp_path)
    with ServerProcess("--model_name=m", f"--model_base_path={tmp_path / 'labels'}", log=tmp_path / "log") as server:
        ask = [bakery, "ask", "-m", "m", "--port", str(server.port), "photo.jpg"]
        assert "7\t0.500\t7\n" == run(ask, tmp_path)


@pytest.mark.timeout(300)
def test_the_wheel_bakes_and_inspects_outside_a_clone(installed: Path, tmp_path: Path) -> None:
    write_decoys(tmp_path)
    bakery = str(installed / "bakery")
    path = run([bakery, "bake", "--model", "efficientnet-lite0"], tmp_path)
    assert "saved_model/efficientnet_lite0/1\n" == path
    assert "serving_default" in run([bakery, "inspect", path.strip()], tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["client", "--help"],
        ["client", "status", "--port", "1"],
        ["client", "--format", "REST", "status", "--rest_api_port", "1"],
        ["exporter", "bake", "--help"],
        ["exporter", "versions", "labels"],
        ["exporter", "function", "missing:function", "--input", "x:float32[?]"],
        ["serving", "--help"],
        ["serving", "--version"],
        ["serving", "--engine=embedded", "--model_name=m", "--model_base_path={broken}", "--max_num_load_retries=0"],
        ["serving", "amqp", "--help"],
        ["serving", "batch", "--help"],
    ],
    ids=" ".join,
)
def test_no_program_imports_a_module_under_two_names(clone: Path, arguments: list[str], tmp_path: Path) -> None:
    """In a clone, where both `client` and `savedmodel_bakery.client` can be imported."""
    model_makers.broken(tmp_path / "broken", 1)
    arguments = [argument.format(broken=tmp_path / "broken") for argument in arguments]
    command = [sys.executable, "-X", "importtime", "-m", *arguments]
    ended = subprocess.run(command, cwd=clone, capture_output=True, text=True, timeout=120)
    imported = re.findall(r"^import time:.*\| +(\S+)$", ended.stderr, re.MULTILINE)
    assert any(name.startswith(f"savedmodel_bakery.{arguments[0]}.") for name in imported), ended.stderr[-2000:]
    short = [name for name in imported if name.partition(".")[0] in FOLDERS]
    assert [arguments[0]] == short
