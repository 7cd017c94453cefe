"""Unexpected exceptions: the caller gets INTERNAL and a request id, the log gets the traceback with the same id."""

from __future__ import annotations

import logging
import uuid

from savedmodel_bakery.wire.status import Code, StatusError


def report(logger: logging.Logger, request: str) -> StatusError:
    """Log the exception being handled, and return the error for the caller.

    Args:
        logger: the transport's logger.
        request: a short description of the request, for the log.
    """
    request_id = uuid.uuid4().hex
    logger.exception("%s failed, request %s", request, request_id)
    return StatusError(Code.INTERNAL, f"internal error; the server's log knows it as request {request_id}")
