"""With `--allowed_model_roots`, models are loaded only from these folders, also after links are resolved."""

from __future__ import annotations

from pathlib import Path

import pytest

from savedmodel_bakery.serving.options.model_config import single_model
from savedmodel_bakery.serving.options.model_roots import OutsideRootsError, check_base_paths, parse_model_roots
from savedmodel_bakery.wire.status import Code, StatusError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An allowed folder with links to a model inside and to one outside, in a folder with a link to the allowed one."""
    for path in ("allowed/m", "allowed-not/m", "allowed/links"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "allowed/links/inside").symlink_to("../m")
    (tmp_path / "allowed/links/outside").symlink_to("../../allowed-not/m")
    (tmp_path / "link").symlink_to("allowed")
    return tmp_path


@pytest.mark.parametrize("path", ["allowed", "allowed/m", "allowed/missing/x", "allowed/links/inside", "link/m", "x\0"])
@pytest.mark.parametrize("folders", ["{root}/allowed", "{root}/link/", "/nosuch,{root}/allowed"])
def test_paths_below_an_allowed_folder_are_accepted(root: Path, folders: str, path: str) -> None:
    roots = parse_model_roots(folders.format(root=root))
    check_base_paths(single_model("m", f"{root}/{path}"), roots)
    check_base_paths(single_model("m", f"file://{root}/{path}"), roots)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("allowed-not/m", None),
        ("allowed/../allowed-not/m", "allowed-not/m"),
        ("allowed/links/outside", "allowed-not/m"),
        ("allowed/links/outside/1", "allowed-not/m/1"),
        ("missing", None),
        (".", None),
    ],
)
def test_other_paths_are_rejected(root: Path, path: str, target: str | None) -> None:
    roots = parse_model_roots(f"{root}/allowed,/data")
    with pytest.raises(OutsideRootsError) as caught:
        check_base_paths(single_model("m", f"{root}/{path}"), roots)
    assert Code.PERMISSION_DENIED is caught.value.code
    link = f" leads to {root}/{target}, which" if target else ""
    assert caught.value.message == (
        f"base path of model m: {root / path}{link} is not below an allowed folder: {root}/allowed, /data "
        "(--allowed_model_roots)"
    )


def test_a_uri_is_checked_as_the_path_that_would_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    roots = parse_model_roots(f"{root}/allowed")
    with pytest.raises(OutsideRootsError):
        check_base_paths(single_model("m", "file://../../allowed-not/m"), roots)


def test_without_folders_every_path_is_allowed(tmp_path: Path) -> None:
    check_base_paths(single_model("m", str(tmp_path)), parse_model_roots(""))


@pytest.mark.parametrize("text", ["models", "/models,", "/a, /b"])
def test_relative_folders_are_rejected(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_model_roots(text)
    assert caught.value.message == f"invalid allowed_model_roots {text}: each folder must be an absolute path"
