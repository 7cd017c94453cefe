"""Hints for missing packages name a command that installs them, in a clone and elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from savedmodel_bakery import extras
from savedmodel_bakery.extras import MissingPackageError, install_command, naming_extras


def test_in_a_clone_the_command_installs_the_clone(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(clone)
    assert "pip install '.[export]'" == install_command("export")


def test_from_another_folder_the_command_names_the_clone(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"pip install '{clone}[serve,ray]'" == install_command("serve", "ray")


@pytest.mark.parametrize("project", [None, '[project]\nname = "other"\n'], ids=["no project", "another project"])
def test_an_installed_package_is_installed_by_name(
    project: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if project:
        (tmp_path / "pyproject.toml").write_text(project)
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    assert "pip install 'savedmodel-bakery[export]'" == install_command("export")


def test_the_innermost_feature_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    expected = "Parquet needs pyarrow, which is not installed; try: pip install 'savedmodel-bakery[parquet]'"
    with (
        pytest.raises(MissingPackageError) as caught,
        naming_extras("bulk", "serve", "ray"),
        naming_extras("Parquet", "parquet"),
    ):
        raise ModuleNotFoundError("No module named 'pyarrow.dataset'", name="pyarrow.dataset")
    assert (expected, "pyarrow.dataset") == (str(caught.value), caught.value.name)


def test_a_missing_module_of_this_package_is_not_reported_as_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, naming_extras("bake", "export"):
        raise ModuleNotFoundError("No module named 'savedmodel_bakery.none'", name="savedmodel_bakery.none")
    assert ModuleNotFoundError is caught.type
