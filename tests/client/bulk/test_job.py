"""Requests of a job: retries, memory and progress."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import canned_models
import pytest
from bulk_files import read_labels, read_rows, write_photos

from savedmodel_bakery import Client, Prediction, RequestRefusedError
from savedmodel_bakery.answers.photo import Photo
from savedmodel_bakery.answers.tasks.labels import CLASSIFY
from savedmodel_bakery.client.bulk.job import Job
from savedmodel_bakery.client.commands.cli import main
from savedmodel_bakery.wire.status import Code

Run = Callable[..., tuple[int, str]]


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (["-m", "pets"], 1, "NOT_FOUND: Servable not found for request: Latest(pets)"),
        (["-n", "none"], 1, 'FAILED_PRECONDITION: signature "none" not found in model "efficientnet_lite0"'),
        (["-m", "half_plus_two"], 1, 'FAILED_PRECONDITION: the outputs of signature "serving_default" of model "half'),
        (["-m", "tagger", "-n", "pixels"], 1, 'INVALID_ARGUMENT: unknown input "image"; input "pixels" is missing'),
        (["-t", "127.0.0.1:1"], 3, "cannot connect to 127.0.0.1:1 over gRPC; is a model server running there?"),
    ],
    ids=["model", "signature", "model of another kind", "signature that takes no images", "no server"],
)
def test_an_error_of_every_request_is_reported_before_the_job_starts(
    run: Run, tmp_path: Path, options: list[str], code: int, error: str
) -> None:
    write_photos(tmp_path / "a", horse=b"horse")
    result = run("a", *options, "--out", "rows.jsonl")
    assert (code, error) == (result[0], result[1][: len(error)])
    assert [] == read_rows()


@pytest.mark.parametrize(
    ("code", "refusals"),
    [(Code.UNAVAILABLE, 6), (Code.RESOURCE_EXHAUSTED, 3), (Code.CANCELLED, 2), (Code.DEADLINE_EXCEEDED, 3)],
    ids=["away for longer than a channel asks", "busy", "closing", "hanging"],
)
def test_requests_to_a_server_that_is_away_or_busy_are_retried(
    run: Run, tmp_path: Path, refuse_runs: Any, code: Code, refusals: int
) -> None:
    refuse_runs(lambda count, _: code if 1 < count <= 1 + refusals else None)
    write_photos(tmp_path / "a", **{f"p{number}": b"cat" for number in range(6)})
    assert 0 == run("a", "--jobs", 1, "--batch-size", 4, "--out", "rows.jsonl")[0]
    assert {f"a/p{number}.jpg": "tabby" for number in range(6)} == read_labels()


def test_a_request_waits_as_long_as_an_overloaded_server_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    refusals = iter([60, 90])

    def predict(inputs: Any, *, signature: str) -> Prediction:
        for retry_after_s in refusals:
            raise RequestRefusedError(Code.RESOURCE_EXHAUSTED, "overloaded", retry_after_s=retry_after_s)
        return Prediction(canned_models.labelled([b"cat"] * len(inputs["image"])), "m", 1, signature)

    client = SimpleNamespace(predict=predict)
    job = Job([client], model="m", task=CLASSIFY, signature="s", batch_size=2, retry_s=100)
    monkeypatch.setattr(job._stopped, "wait", pauses.append)
    [rows] = job.run(Photo(name, 3, lambda: b"cat") for name in "ab")
    assert ([60, 90], 2) == (pauses, len(rows))


def test_a_photo_that_fails_its_request_does_not_affect_the_others(run: Run, tmp_path: Path, refuse_runs: Any) -> None:
    refuse_runs(lambda _, images: Code.INTERNAL if b"evil" in images else None)
    write_photos(tmp_path / "a", horse=b"horse", evil=b"evil", cat=b"cat")
    assert 4 == run("a", "--out", "rows.jsonl")[0]
    assert {"a/horse.jpg": "sorrel", "a/evil.jpg": "INTERNAL: not this one", "a/cat.jpg": "tabby"} == read_labels()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.NOT_FOUND, "NOT_FOUND: not this one"),
        (Code.UNAVAILABLE, "UNAVAILABLE: not this one"),
        (Code.DEADLINE_EXCEEDED, "not this one"),
    ],
    ids=["model gone", "server gone", "server hangs"],
)
def test_a_job_that_fails_midway_can_continue(
    run: Run, tmp_path: Path, refuse_runs: Any, code: Code, error: str
) -> None:
    write_photos(tmp_path / "a", **{f"p{number}": b"cat" for number in range(40)})
    refuse_runs(lambda count, _: code if count > 20 else None)
    outcome = run("a", "--jobs", 1, "--batch-size", 1, "--retry-seconds", 0, "--out", "rows.jsonl")
    refuse_runs(lambda _, __: None)
    assert (1, error) == outcome
    assert 0 < len(read_labels()) < 40
    assert 0 == run("a", "--out", "rows.jsonl")[0]
    assert {f"a/p{number}.jpg": "tabby" for number in range(40)} == read_labels()


def peak_bytes(peer: Any, count: int) -> int:
    """Return the most memory in use while a job classifies photos of 1 MiB."""
    generated = (Photo(f"{at}.jpg", 1 << 20, lambda: bytes(1 << 20)) for at in range(count))
    with Client(port=peer.grpc_port, model="efficientnet_lite0") as client:
        job = Job(
            [client, client], model="efficientnet_lite0", task=CLASSIFY, signature="top_k", batch_size=1, retry_s=60
        )
        gc.disable()
        tracemalloc.start()
        try:
            assert count == sum(map(len, job.run(generated)))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            gc.enable()


def test_finished_photos_are_not_kept_in_memory(peer: Any) -> None:
    """Five times as many photos would need about five times the memory if they were kept."""
    assert peak_bytes(peer, 150) < 2 * peak_bytes(peer, 30)


def test_photos_are_not_read_far_ahead(peer: Any) -> None:
    """When the first rows arrive, only the photos of the concurrent requests have been read."""
    taken = 0

    def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield Photo(str(taken), 3, lambda: b"cat")

    first, second = (Client(port=peer.grpc_port, model="efficientnet_lite0") for _ in range(2))
    with first, second:
        rows = Job(
            [first, second], model="efficientnet_lite0", task=CLASSIFY, signature="top_k", batch_size=3, retry_s=0
        ).run(endless())
        assert ["tabby"] * 3 == [row["label"] for row in next(rows)]
        rows.close()
    assert taken <= 2 * 2 * 3 + 1


def test_the_progress_bar_and_the_summary_count_failed_photos(
    peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat", odd=b"?")
    with pytest.raises(SystemExit):
        main(["bulk", "--port", str(peer.grpc_port), "a", "--out", "rows.jsonl"])
    *_, bar, end = capsys.readouterr().err.splitlines()
    assert "3/3 [" in bar
    assert "photos/s, failed=1]" in bar
    assert "1 of 3 photos failed; their rows have the reason" == end
