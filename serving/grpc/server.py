"""The gRPC server: its ports, threads and limits."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import grpc

from savedmodel_bakery.serving.access.access import Access
from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import Cost
from savedmodel_bakery.serving.call.call import Entrypoint, Rpc
from savedmodel_bakery.serving.grpc.calls import Calls
from savedmodel_bakery.serving.grpc.standard_services import HealthService
from savedmodel_bakery.serving.grpc.transfers import Lane
from savedmodel_bakery.serving.options.settings import Tls
from savedmodel_bakery.wire.status import Code, StatusError

logger = logging.getLogger(__name__)

_OPTIONS = {
    "grpc.max_send_message_length": -1,
    "grpc.so_reuseport": 0,  # no second process may listen on the same port
    "grpc.enable_channelz": 0,  # its records take 2 % of a small call's time, and nothing serves them
    "grpc.per_message_decompression": 0,  # see codec.unpack
    # From a thousand calls that have just arrived to three thousand, gRPC would cancel some, whoever makes them.
    "grpc.server.max_pending_requests": 3000,
    "grpc.http2.bdp_probe": 0,  # with it, gRPC receives megabytes of messages that are rejected unread
    "grpc.http2.lookahead_bytes": 2**18,  # what it receives of a message before it is read: a small photo
}

_CONTROL_CALLS = 32
_HEADER_SHARE = 4  # gRPC counts 32 bytes more for each header, and Python objects take several times as many
_REJECTED_CALLS = 256  # whose callers are still to be told; gRPC itself rejects further ones


class GrpcServer:
    """Serves gRPC on TCP ports and Unix sockets, all of them with TLS if `tls` is given.

    `arguments` are gRPC's channel arguments, as `k=v,k=v`.

    Raises:
        StatusError: INVALID_ARGUMENT if an address is not available, or a key or certificate is not valid PEM.
    """

    def __init__(
        self,
        calls: Mapping[str, Rpc],
        addresses: list[str],
        entrypoint: Entrypoint,
        *,
        access: Access,
        admission: Admission,
        arguments: str = "",
        tls: Tls | None = None,
        health: bool = False,
    ) -> None:
        limits = admission.limits
        options: dict[str, int | str] = {
            **_OPTIONS,
            "grpc.max_receive_message_length": min(limits.message_bytes, admission.memory.size // Cost.MESSAGE),
            "grpc.max_metadata_size": limits.header_bytes // _HEADER_SHARE,
            "grpc.absolute_max_metadata_size": limits.header_bytes // _HEADER_SHARE,
            "grpc.max_allowed_incoming_connections": limits.connections,
            "grpc.server_handshake_timeout_ms": round(limits.header_timeout_s * 1000),
            # A peer that has sent half of its headers can't answer a ping.
            "grpc.keepalive_time_ms": round(limits.header_timeout_s * 1000),
            "grpc.keepalive_timeout_ms": round(limits.header_timeout_s * 1000),
            "grpc.http2.ping_timeout_ms": round(limits.header_timeout_s * 1000),
            "grpc.keepalive_permit_without_calls": 1,
            "grpc.http2.max_pings_without_data": 0,
        }
        runs = Lane(admission, "grpc", limits.body_timeout_s)
        # Their messages are small, so they arrive as fast as headers.
        others = Admission(limits, admission.memory, turns=_CONTROL_CALLS)
        control = Lane(others, "control", limits.header_timeout_s)
        self._server = grpc.server(
            runs.threads,
            options=list({**options, **channel_arguments(arguments)}.items()),
            maximum_concurrent_rpcs=runs.admission.places + control.admission.places + _REJECTED_CALLS,
        )
        self._health = HealthService(control.threads) if health else None
        self._server.add_generic_rpc_handlers([Calls(calls, entrypoint, access, runs, control, self._health)])
        try:
            for address in addresses:
                if tls:
                    self._server.add_secure_port(address, _credentials(tls))
                else:
                    self._server.add_insecure_port(address)
        except RuntimeError as error:
            logger.error("gRPC cannot listen on %s: %s", address, error)
            raise StatusError(Code.INVALID_ARGUMENT, "Failed to BuildAndStart gRPC server") from error

    def start(self) -> None:
        """Start to serve calls."""
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Reject new calls; return when the running ones have finished or the grace period is over."""
        if self._health:
            self._health.stop()
        self._server.stop(grace_s).wait()


def channel_arguments(text: str) -> dict[str, int | str]:
    """Parse `k=v,k=v`; values that fit a 32-bit integer become integers."""
    arguments: dict[str, int | str] = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        try:
            number = int(value)
        except ValueError:
            number = 2**31
        arguments[name] = number if -(2**31) <= number < 2**31 else value
    return arguments


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    """Return the credentials of a port with TLS; gRPC reports invalid PEM only when it opens the port."""
    return grpc.ssl_server_credentials(
        [(tls.key.encode(), tls.certificate.encode())],
        root_certificates=tls.client_authority.encode() or None,
        require_client_auth=tls.verify_clients,
    )
