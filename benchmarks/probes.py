"""Calls health and metadata of a model server at short intervals while it is under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import grpc
import numpy as np
import requests
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.targets import MODEL
from savedmodel_bakery.client.calls import Metadata, ModelSpec
from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.client.transports import create_transport
from savedmodel_bakery.errors import ClientError

TIMEOUT_S = 10.0
_INTERVAL_S = 0.05


class Probes:
    """Such calls, each kind on a thread of its own until the end of the `with` block.

    Args:
        grpc_port: loopback port.
        rest_port: loopback port.

    Attributes:
        failed: number of calls without an answer within 10 s, or with an error.
    """

    def __init__(self, grpc_port: int, rest_port: int) -> None:
        self.failed = 0
        self._latencies_s: dict[str, list[float]] = {}
        self._ended = threading.Event()
        self._stack = ExitStack()
        self._threads = [
            threading.Thread(target=self._run, args=kind) for kind in self._kinds(grpc_port, rest_port).items()
        ]

    def __enter__(self) -> Probes:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._stack.close()

    def p99_ms(self) -> Mapping[str, float]:
        """Return the latency that 99 % of the calls did not exceed, by kind of call."""
        return {
            kind: float(np.percentile(values, 99, method="higher")) * 1e3 for kind, values in self._latencies_s.items()
        }

    def _kinds(self, grpc_port: int, rest_port: int) -> dict[str, Callable[[], object]]:
        channel = self._stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{grpc_port}"))
        health, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest()
        session = self._stack.enter_context(requests.Session())
        session.trust_env = False  # no proxy
        url = f"http://127.0.0.1:{rest_port}/v2/health/live"
        kinds: dict[str, Callable[[], object]] = {
            "gRPC health": lambda: health.Check(request, timeout=TIMEOUT_S),
            "REST health": lambda: session.get(url, timeout=TIMEOUT_S).raise_for_status(),
        }
        for title, port in (("gRPC", grpc_port), ("REST", rest_port)):
            server = parse_server(f"127.0.0.1:{port}", transport=title.lower())
            transport = create_transport(server, timeout_s=TIMEOUT_S, for_load=True)
            self._stack.callback(transport.close)
            kinds[f"{title} metadata"] = transport.prepare(Metadata(ModelSpec(MODEL)))
        return kinds

    def _run(self, kind: str, call: Callable[[], object]) -> None:
        latencies_s = self._latencies_s.setdefault(kind, [])
        while not self._ended.wait(_INTERVAL_S):
            started_s = time.perf_counter()
            try:
                call()
            except (ClientError, grpc.RpcError, requests.RequestException):
                self.failed += 1
            latencies_s.append(time.perf_counter() - started_s)
