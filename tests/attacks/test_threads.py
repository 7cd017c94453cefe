"""Row 6: calls that stay open, to a server that may have few threads."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import http2
import numpy as np
import psutil
import pytest
from attacked_server import TINY, HonestCallers
from grpc_calls import request
from server_process import ServerProcess
from tensorflow_serving.apis import prediction_service_pb2_grpc
from waiting import wait_until

THREADS = 1024
CALLS = 1100
WATCH = "/grpc.health.v1.Health/Watch"
WITHOUT_MESSAGES = (
    WATCH,
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/tensorflow.serving.PredictionService/Predict",
)
# No limit of threads holds for processes of root. Python's files are opened as root.
LIMITED = (
    *("setpriv", "--ruid=54321", "--clear-groups", "--inh-caps=-all", "--bounding-set=-sys_resource,-sys_admin"),
    *("prlimit", f"--nproc={THREADS}"),
)


@pytest.fixture
def base_path(half_plus_two: Path) -> Iterator[Path]:
    """Base path of half_plus_two, which every user can read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield shutil.copytree(half_plus_two, Path(folder) / TINY)


def test_calls_that_stay_open_with_few_threads(base_path: Path, tmp_path: Path) -> None:
    """Sent: 1100 calls of Watch, and 1100 each of Watch, Check, reflection and Predict without their messages.

    Allowed: half of the threads that the system permits, RESOURCE_EXHAUSTED for further calls, and no threads kept.
    Calls of health are answered, and the server stops in order.
    """
    flags = (f"--model_name={TINY}", f"--model_base_path={base_path}", "--enable_grpc_healthcheck_service")
    with ServerProcess(*flags, log=tmp_path / "log", under=LIMITED) as server, ExitStack() as stack:
        threads = psutil.Process(server.process.pid).num_threads
        before = threads()
        others = stack.enter_context(HonestCallers(server, predict=False))
        channel = stack.enter_context(grpc.insecure_channel(server.target))
        watchers = [channel.unary_stream(WATCH)(b"") for _ in range(CALLS)]
        wait_until(lambda: CALLS - 1000 == sum(not watcher.is_active() for watcher in watchers))
        assert {"RESOURCE_EXHAUSTED"} == {watcher.code().name for watcher in watchers if not watcher.is_active()}
        wait_until(lambda: threads() <= before + 10, describe=threads)  # the other 1000 hold none
        with ExitStack() as attack:
            for path in WITHOUT_MESSAGES:
                attack.enter_context(closing(http2.open_calls(server.port, path, CALLS)))
                others.wait_for_round()
                assert threads() < THREADS / 2 + before
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            with pytest.raises(grpc.RpcError) as error:
                stub.Predict(request(x=np.float32([4])), timeout=10)
            assert "RESOURCE_EXHAUSTED" == error.value.code().name
        wait_until(lambda: threads() <= before + 10, describe=threads)
        assert [4.0] == list(stub.Predict(request(x=np.float32([4])), timeout=10).outputs["y"].float_val)
        others.wait_for_round()
        stack.close()
        assert 0 == server.stop()
    others.assert_served()
