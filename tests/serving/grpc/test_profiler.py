"""The profiler service, called with TensorFlow's own client and with raw messages."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import requests
import tensorflow as tf
from server_process import ServerProcess
from waiting import wait_until

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.grpc.services import Profiler
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import StatusError

PROFILE, TERMINATE = "/tensorflow.ProfilerService/Profile", "/tensorflow.ProfilerService/Terminate"
TRACE = """
import sys
import tensorflow as tf
tf.profiler.experimental.client.trace(sys.argv[1], sys.argv[2], 500)
"""


def send(server: ServerProcess, path: str, request: object, response_class: object) -> object:
    """Return the response, or code and message of the error."""
    with grpc.insecure_channel(server.target) as channel:
        try:
            response = channel.unary_unary(path)(request.SerializeToString(), timeout=60)  # type: ignore[attr-defined]
        except grpc.RpcError as error:
            return error.code().name, error.details()
    return response_class.FromString(response)  # type: ignore[attr-defined]


def profile(server: ServerProcess, **fields: object) -> object:
    return send(server, PROFILE, schema.ProfileRequest(**fields), schema.ProfileResponse)


def test_tensorflows_client_gets_a_trace(server: ServerProcess, tmp_path: Path) -> None:
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            requests.post(f"{server.url}/v1/models/half_plus_two:predict", json={"instances": [1.0]}, timeout=30)

    caller = threading.Thread(target=keep_busy)
    caller.start()
    try:
        command = [sys.executable, "-c", TRACE, f"grpc://{server.target}", str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        response = profile(server, duration_ms=200, emit_xspace=True)
    finally:
        stop.set()
        caller.join()
    assert 0 == ended.returncode, ended.stderr
    (written,) = tmp_path.rglob("*.xplane.pb")
    assert b"SessionRun" in written.read_bytes()
    assert (False, True) == (response.empty_trace, len(response.xspace) > 0)  # type: ignore[attr-defined]


def test_a_trace_excludes_others_and_can_be_terminated(server: ServerProcess) -> None:
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(profile, server, duration_ms=60_000)

        def is_active() -> bool:
            nonlocal long
            if long.done():  # rejected because a short trace was running
                long = pool.submit(profile, server, duration_ms=60_000)
            return profile(server, duration_ms=1) == ("UNAVAILABLE", "Another profiler session active.")

        def has_ended() -> bool:
            send(server, TERMINATE, schema.TerminateRequest(), schema.TerminateResponse)
            return long.done()

        wait_until(is_active, timeout_s=30)
        wait_until(has_ended, timeout_s=30)
        assert isinstance(long.result(), schema.ProfileResponse)


@pytest.mark.parametrize("name", ["../../etc", "..", "a/b"])
def test_names_cannot_leave_the_root_folder(server: ServerProcess, tmp_path: Path, name: str) -> None:
    for field in ("session_id", "host_name"):
        code, _ = profile(server, repository_root=str(tmp_path / "root"), **{field: name})  # type: ignore[misc]
        assert "INVALID_ARGUMENT" == code
    assert [] == list(tmp_path.iterdir())


def test_a_root_with_a_nul_byte_is_rejected_before_the_trace(server: ServerProcess) -> None:
    error = ("INVALID_ARGUMENT", r"invalid repository_root '/tmp/a\x00b': must be the path of a folder")
    assert error == profile(server, duration_ms=60_000, repository_root="/tmp/a\0b")


def test_a_tracer_that_writes_no_file_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.profiler.experimental, "start", lambda _folder: None)
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: None)
    service = Profiler()
    for _ in range(2):  # the failure does not block the next trace
        with pytest.raises(StatusError, match=r"UNAVAILABLE: The tracer has written no trace\."):
            service.profile(schema.ProfileRequest(duration_ms=1), RequestContext())
