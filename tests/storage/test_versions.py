"""Versions are found, read and removed alike in a folder and in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_versions import memory_store

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.storage import versions
from savedmodel_bakery.storage.store import Store

GRAPH, RECIPE, WEIGHTS = "saved_model.pb", "assets.extra/recipe.toml", "variables/weights"


@pytest.fixture(params=["folder", "bucket"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Store:
    """A model with the versions 2 and 10, of which 10 has a recipe; 12 is being published."""
    place = tmp_path / "pets" if request.param == "folder" else memory_store()
    files = [f"{number}/{name}" for number in (2, 10) for name in (GRAPH, WEIGHTS)]
    for name in [*files, f"10/{RECIPE}", f"11.old/{GRAPH}", f"12/{WEIGHTS}"]:
        content = name.encode()
        if isinstance(place, Store):
            place.create(name, content)
        else:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
    return place


def test_of_a_model(model: Path | Store) -> None:
    published = versions.published_versions(model)
    assert [2, 10] == list(published)
    assert [f"{model}/2", f"{model}/10"] == [str(version) for version in published.values()]
    assert published[10] == versions.find_version(model)
    assert published[2] == versions.find_version(published[2])
    versions.remove(published[10])
    assert [2] == list(versions.published_versions(model))
    versions.remove(published[2])
    with pytest.raises(PublishError):
        versions.find_version(model)


def test_of_files(model: Path | Store) -> None:
    version = versions.find_version(model)
    assert {name: len(f"10/{name}") for name in (GRAPH, WEIGHTS, RECIPE)} == dict(versions.sizes(version))
    assert 0 == versions.published_at(version).utcoffset().total_seconds()
    with versions.opened(version, {Path("assets.extra")}) as folder:
        assert "10" == folder.name
        assert f"10/{RECIPE}".encode() == (folder / RECIPE).read_bytes()
