"""Rows 2 and 3: configurations from strangers and configurations with mistakes."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import grpc
import model_makers
import psutil
import pytest
from attacked_server import TINY, AttackedServer, HonestCallers
from tensorflow_serving.apis import get_model_status_pb2, model_management_pb2, model_service_pb2_grpc
from waiting import wait_until

from savedmodel_bakery.wire import schema

RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
PROFILE = "/tensorflow.ProfilerService/Profile"
DEADLINE_S = 2.0


class _Forwarder(socketserver.ThreadingTCPServer):
    """Forwards connections to a server on loopback, which sees them come from another address of this machine."""

    daemon_threads = True

    def __init__(self, source: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Forwarding)
        self.source, self.port = source, port


class _Forwarding(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        forwarder = self.server
        target = socket.create_connection(("127.0.0.1", forwarder.port), 10, source_address=(forwarder.source, 0))
        with closing(target):
            back = threading.Thread(target=self._copy, args=(target, self.request), daemon=True)
            back.start()
            self._copy(self.request, target)
            back.join()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def stranger(server: AttackedServer) -> Iterator[grpc.Channel]:
    """A channel of a caller that is not on this machine, as far as the server can see."""
    addresses = [
        address.address
        for of_interface in psutil.net_if_addrs().values()
        for address in of_interface
        if address.family is socket.AF_INET and not address.address.startswith("127.")
    ]
    assert addresses, "this test needs a network address besides loopback"
    with _Forwarder(addresses[0], server.port) as forwarder:
        thread = threading.Thread(target=forwarder.serve_forever)
        thread.start()
        try:
            with grpc.insecure_channel(f"127.0.0.1:{forwarder.server_address[1]}") as channel:
                yield channel
        finally:
            forwarder.shutdown()
            thread.join()


def reload_request(**base_paths: Path) -> model_management_pb2.ReloadConfigRequest:
    message = model_management_pb2.ReloadConfigRequest()
    message.config.model_config_list.SetInParent()
    for name, path in base_paths.items():
        message.config.model_config_list.config.add(name=name, base_path=str(path), model_platform="tensorflow")
    return message


def test_strangers_cannot_change_the_models(
    server: AttackedServer, stranger: grpc.Channel, half_plus_two: Path
) -> None:
    """Sent: configurations without models and with another folder, from another address than loopback.

    Allowed: PERMISSION_DENIED; the models stay as they are.
    """
    reload = model_service_pb2_grpc.ModelServiceStub(stranger).HandleReloadConfigRequest
    with HonestCallers(server) as others:
        for message in (reload_request(), reload_request(stolen=half_plus_two)):
            with pytest.raises(grpc.RpcError) as error:
                reload(message, timeout=10)
            assert "PERMISSION_DENIED" == error.value.code().name
        others.wait_for_round()
    others.assert_served()


def test_strangers_cannot_use_the_profiler(stranger: grpc.Channel, tmp_path: Path) -> None:
    """Sent: a request to write a trace to a folder. Allowed: PERMISSION_DENIED, and no file."""
    message = schema.ProfileRequest(duration_ms=10, repository_root=str(tmp_path), session_id="x")
    with pytest.raises(grpc.RpcError) as error:
        stranger.unary_unary(PROFILE)(message.SerializeToString(), timeout=10)
    assert "PERMISSION_DENIED" == error.value.code().name
    assert [] == list(tmp_path.iterdir())


def test_wrong_base_paths_block_no_other_model(server: AttackedServer, half_plus_two: Path, tmp_path: Path) -> None:
    """Sent: 12 configurations at once with a base path that does not exist, with a deadline of 2 s each.

    Allowed: an answer within the deadline. Others are answered, new versions of other models are loaded meanwhile, and
    a correct configuration is applied afterwards.
    """
    added = tmp_path / "added"
    model_makers.half_plus(added, 1)

    def reload(message: model_management_pb2.ReloadConfigRequest, timeout_s: float) -> str:
        with grpc.insecure_channel(server.target) as channel:
            try:
                model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest(message, timeout=timeout_s)
            except grpc.RpcError as error:
                return error.code().name
        return "OK"

    def versions(model: str) -> dict[int, str]:
        message = get_model_status_pb2.GetModelStatusRequest()
        message.model_spec.name = model
        with grpc.insecure_channel(server.target) as channel:
            response = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(message, timeout=DEADLINE_S)
        return {status.version: status.State.Name(status.state) for status in response.model_version_status}

    models = {TINY: half_plus_two, "added": added}
    with HonestCallers(server) as others:
        assert "OK" == reload(reload_request(**models), 30)
        wrong = reload_request(**models, wrong=tmp_path / "tpyo")
        with ThreadPoolExecutor(12) as callers:
            codes = set(callers.map(lambda _: reload(wrong, DEADLINE_S), range(12)))
        assert "OK" not in codes
        model_makers.half_plus(added, 2)
        wait_until(lambda: "AVAILABLE" == versions("added").get(2), timeout_s=30)
        assert "OK" == reload(reload_request(**models), 30)
    others.assert_served()
