"""Manifests: a folder agrees with its own only, and a damaged or malicious one is rejected."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from stored_versions import write_version

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.storage.manifest import FileDigest, decode, describe, encode, find_difference

DIGEST = {"size_bytes": 1, "sha256": "00"}


def test_a_manifest_has_the_size_and_digest_of_each_file_but_itself(tmp_path: Path) -> None:
    write_version(tmp_path)
    manifest = describe(tmp_path)
    (tmp_path / "assets.extra" / "manifest.json").write_bytes(encode(manifest))
    assert manifest == describe(tmp_path) == decode(encode(manifest), "it")
    assert FileDigest(5, hashlib.sha256(b"index").hexdigest()) == manifest["variables/variables.index"]
    assert 4 == len(manifest)


def test_each_difference_is_named(tmp_path: Path) -> None:
    manifest = describe(write_version(tmp_path))
    assert "" == find_difference(manifest, describe(tmp_path))
    (tmp_path / "variables" / "variables.index").write_text("INDEX")
    assert "variables/variables.index differs from the manifest" == find_difference(manifest, describe(tmp_path))
    (tmp_path / "variables" / "stray").write_text("")
    assert "variables/stray is not in the manifest" == find_difference(manifest, describe(tmp_path))
    (tmp_path / "saved_model.pb").unlink()
    assert "saved_model.pb is missing" == find_difference(manifest, describe(tmp_path))


@pytest.mark.parametrize(
    "document",
    [
        *(None, [], {}, {"files": []}, {"files": {"saved_model.pb": {"size_bytes": 1}}}),
        {"files": {"saved_model.pb": DIGEST | {"size_bytes": float("inf")}}},
    ],
)
def test_another_document_is_no_manifest(document: Any) -> None:
    with pytest.raises(PublishError, match=r"^it is not a manifest of a version$"):
        decode(json.dumps(document).encode(), "it")


@pytest.mark.parametrize("name", ["", ".", "../x", "a/../../x", "/etc/x", "a//b", "a/", "./a", "\\b", "a\0b", "\ud800"])
def test_a_path_outside_the_version_is_rejected(name: str) -> None:
    document = {"files": {"saved_model.pb": DIGEST, name: DIGEST}}
    with pytest.raises(PublishError, match=r"which is not the path of a file in a version$"):
        decode(json.dumps(document).encode(), "it")


def test_a_manifest_without_a_graph_is_rejected() -> None:
    with pytest.raises(PublishError, match=r"^it lacks saved_model\.pb$"):
        decode(json.dumps({"files": {"other": DIGEST}}).encode(), "it")
