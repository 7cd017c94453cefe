"""A new pod of a headless Service gets gRPC calls, because servers end connections after some time; no call fails."""

from __future__ import annotations

import json
import socket
import struct
import threading
from pathlib import Path

import grpc
import grpc_calls
import model_makers
from server_process import ServerProcess
from tensorflow_serving.apis import prediction_service_pb2_grpc
from waiting import wait_until

FLAG = "--grpc_channel_arguments=grpc.max_connection_age_ms=300,grpc.max_connection_age_grace_ms=300000"
BALANCED = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
_ADDRESS_RECORD = 1


class Names:
    """A DNS server whose every name has the same addresses, as that of a headless Service (RFC 1035, section 4).

    Attributes:
        addresses: IPv4 addresses, which may change.
        port: of the server.
    """

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            query, caller = self._socket.recvfrom(512)
            question = query[12 : query.index(b"\0", 12) + 5]
            (kind,) = struct.unpack("!H", question[-4:-2])
            records = [
                b"\xc0\x0c" + struct.pack("!HHIH", _ADDRESS_RECORD, 1, 0, 4) + socket.inet_aton(address)
                for address in (self.addresses if kind == _ADDRESS_RECORD else [])
            ]
            header = query[:2] + struct.pack("!HHHHH", 0x8180, 1, len(records), 0, 0)
            self._socket.sendto(header + question + b"".join(records), caller)


def test_a_new_pod_gets_calls(tmp_path: Path) -> None:
    """Two servers with the same port, at two addresses; they differ in their answers."""
    for number in (1, 2):
        model_makers.half_plus(tmp_path / str(number), 1, plus=float(number))
    flags = [(FLAG, "--model_name=halves", f"--model_base_path={tmp_path / str(number)}") for number in (1, 2)]
    names = Names("127.0.0.1")
    with ServerProcess(*flags[0], log=tmp_path / "log1") as first:
        options = [("grpc.service_config", BALANCED), ("grpc.dns_min_time_between_resolutions_ms", 100)]
        target = f"dns://127.0.0.1:{names.port}/halves.models.svc:{first.port}"
        with grpc.insecure_channel(target, options) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

            def call() -> float:
                request = grpc_calls.request(model="halves", x=[0.0])
                return float(stub.Predict(request, timeout=10).outputs["y"].float_val[0])

            assert {1.0} == {call() for _ in range(10)}
            second_flags = (f"--port={first.port}", "--bind_address=127.0.0.2", "--rest_api_port=0")
            with ServerProcess(*flags[1], *second_flags, log=tmp_path / "log2", wait=False) as second:
                second.wait_for_log("Running gRPC ModelServer")
                names.addresses.append("127.0.0.2")
                wait_until(lambda: call() == 2.0)
                assert {1.0, 2.0} == {call() for _ in range(10)}
