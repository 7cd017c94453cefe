"""Canonical codes to gRPC's status codes. Messages are truncated by `wire.status.truncate_message`."""

from __future__ import annotations

import grpc

from savedmodel_bakery.wire.status import Code

STATUS_CODES = {Code(status.value[0]): status for status in grpc.StatusCode}
