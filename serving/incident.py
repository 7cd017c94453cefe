"""Unexpected exceptions: the caller gets INTERNAL and a request id, the log gets the traceback with the same id."""

from __future__ import annotations

import logging
import uuid

from savedmodel_bakery.wire.status import Code, StatusError


def report(logger: logging.Logger, operation: str, request_id: str = "") -> StatusError:
    """Log the exception that is being handled and return the error to send to the caller.

    `operation` is what failed, such as `POST /v1/models/m:predict`; by default the request id is a new one.
    """
    request_id = request_id or uuid.uuid4().hex
    logger.exception("%s failed with an unexpected exception (request id %s)", operation, request_id)
    return StatusError(Code.INTERNAL, f"internal error; see request id {request_id} in the server's log")
