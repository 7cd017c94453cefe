"""Incidents: what nobody expected. The caller gets INTERNAL and a number, the log gets the traceback under it."""

from __future__ import annotations

import logging
import uuid

from savedmodel_bakery.wire.status import Code, StatusError


def report(logger: logging.Logger, request: str) -> StatusError:
    """Log the exception that is being handled, and make the error for the caller.

    Args:
        logger: of the transport.
        request: what was asked, in a few words.
    """
    request_id = uuid.uuid4().hex
    logger.exception("%s failed, request %s", request, request_id)
    return StatusError(Code.INTERNAL, f"internal error; the server's log knows it as request {request_id}")
