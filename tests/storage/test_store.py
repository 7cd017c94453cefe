"""Every storage behaves alike: memory, a local folder, S3 (moto's server) and GCS (fake-gcs-server)."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import gcs_server
import pytest
import s3_server
from server_process import free_port

from savedmodel_bakery.errors import ConnectionFailedError, PublishError
from savedmodel_bakery.extras import MissingPackageError
from savedmodel_bakery.storage import store as module
from savedmodel_bakery.storage.store import Store, open_store

_numbers = itertools.count()


@pytest.fixture(scope="module")
def s3_port() -> Iterator[int]:
    with s3_server.run_s3() as port:
        yield port


@pytest.fixture(scope="module")
def gcs_port() -> Iterator[int]:
    with gcs_server.run_gcs() as port:
        yield port


@pytest.fixture(params=["memory", "file", "s3", "gs"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store."""
    variables = {}
    if request.param == "s3":
        variables = s3_server.environment(request.getfixturevalue("s3_port"))
    if request.param == "gs":
        variables = gcs_server.environment(request.getfixturevalue("gcs_port"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    roots = {"memory": "store-", "file": f"{tmp_path}/", "s3": f"{s3_server.BUCKET}/", "gs": f"{gcs_server.BUCKET}/"}
    root = roots[request.param]
    return open_store(f"{request.param}://{root}{next(_numbers)}/flowers")


class TestStore:
    def test_an_empty_store_has_no_files(self, store: Store) -> None:
        assert {} == store.sizes()

    def test_files_are_listed_by_their_relative_paths(self, store: Store) -> None:
        store.create("2/saved_model.pb", b"graph")
        store.create("2/variables/empty", b"")
        store.create("22/saved_model.pb", b"other")
        assert {"2/saved_model.pb": 5, "2/variables/empty": 0, "22/saved_model.pb": 5} == store.sizes()
        assert {"saved_model.pb": 5, "variables/empty": 0} == store.below("2").sizes()

    def test_a_local_file_is_copied_in_both_directions(self, store: Store, tmp_path: Path) -> None:
        (tmp_path / "source").write_bytes(bytes(range(256)))
        store.create("a b/ü?#%.data", tmp_path / "source")
        store.download("a b/ü?#%.data", tmp_path / "copy")
        assert bytes(range(256)) == (tmp_path / "copy").read_bytes() == store.read("a b/ü?#%.data")

    @pytest.mark.parametrize("from_file", [False, True], ids=["bytes", "file"])
    def test_a_file_is_never_overwritten(self, store: Store, tmp_path: Path, from_file: bool) -> None:
        store.create("file", b"old")
        (tmp_path / "new").write_bytes(b"new")
        with pytest.raises(FileExistsError):
            store.create("file", tmp_path / "new" if from_file else b"new")
        assert b"old" == store.read("file")

    def test_the_digest_is_that_of_the_content_however_it_is_read(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_BLOCK_BYTES", 3)
        for content in (b"", b"123", b"12345"):
            store.create(str(len(content)), content)
            expected = hashlib.sha256(content).hexdigest()
            assert expected == store.digest(str(len(content)), len(content))

    def test_a_removed_file_can_be_written_again(self, store: Store) -> None:
        store.create("file", b"old")
        store.remove("file")
        assert {} == store.sizes()
        store.create("file", b"new")
        assert b"new" == store.read("file")

    def test_a_file_has_the_time_at_which_it_was_written(self, store: Store) -> None:
        store.create("file", b"")
        age = datetime.now(timezone.utc) - store.modified("file").astimezone(timezone.utc)
        assert timedelta(seconds=-2) < age < timedelta(minutes=1)

    def test_changes_of_other_programs_are_seen(self, store: Store) -> None:
        assert {} == store.sizes()
        open_store(store.url).create("file", b"")
        assert {"file": 0} == store.sizes()

    def test_a_missing_file_is_reported_with_its_url(self, store: Store) -> None:
        with pytest.raises(PublishError, match=f"^cannot read {store.url}/none: (not found|.*No such file)"):
            store.read("none")


def test_a_bucket_that_does_not_exist_is_reported(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment(s3_port).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PublishError, match=r"^cannot list s3://none/flowers: The specified bucket does not exist$"):
        open_store("s3://none/flowers").sizes()


def test_missing_credentials_are_reported(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment(s3_port).items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(PublishError, match=r"^cannot list s3://bucket/flowers: Unable to locate credentials$"):
        open_store("s3://bucket/flowers").sizes()


def test_a_server_that_cannot_be_reached_is_reported_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment(free_port()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(ConnectionFailedError, match=r"^cannot list s3://bucket/flowers: Could not connect to"):
        open_store("s3://bucket/flowers").sizes()


@pytest.mark.parametrize("url", ["bucket/flowers", "s3:/bucket", "s3://", "s3:///", "simplecache::s3://bucket/flowers"])
def test_what_is_not_the_url_of_a_folder_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be the URL of a folder, such as s3://bucket/models/flowers$"):
        open_store(url)


def test_an_unknown_scheme_is_rejected() -> None:
    with pytest.raises(PublishError, match=r"^cannot open what://bucket/flowers: Protocol not known: what$"):
        open_store("what://bucket/flowers")


@pytest.mark.parametrize(
    ("scheme", "package", "extra"),
    [("s3", "s3fs", "s3"), ("gs", "gcsfs", "gcs"), ("az", "adlfs", "azure"), ("memory", "fsspec", "storage")],
)
def test_a_missing_package_is_named_with_its_extra(
    scheme: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingPackageError, match=rf"^{scheme}:// needs {package}, .*\[{extra}\]'$"):
        open_store(f"{scheme}://bucket/flowers")
