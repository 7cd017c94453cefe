"""What only REST does: element types that JSON lacks, and responses that are not of the API."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

import canned_models
import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery import (
    AccessDeniedError,
    Client,
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
)

JSON = "Content-Type: application/json\r\n"


def test_an_element_type_that_json_lacks_is_not_sent(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    half = canned_models.Model(
        {"serving_default": canned_models.signature_of({"x": "DT_BFLOAT16"}, {"y": "DT_FLOAT"})}, None
    )
    monkeypatch.setitem(canned_models.MODELS, "half", half)
    with (
        Client(transport="rest", rest_api_port=peer.rest_port, model="half") as client,
        pytest.raises(RequestRefusedError, match=r'^UNIMPLEMENTED: input "x" is bfloat16') as caught,
    ):
        client.predict({"x": np.zeros(1, ml_dtypes.bfloat16)})
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("response", "error", "message"),
    [
        pytest.param(
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<h1>",
            InvalidResponseError,
            '/v1/models/m responded HTTP 404 with text/html; a model server responds {"error": …}',
            id="page",
        ),
        pytest.param(
            "HTTP/1.1 401 Unauthorized\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<h1>",
            AccessDeniedError,
            '/v1/models/m responded HTTP 401 with text/html; a model server responds {"error": …}',
            id="a gateway's password",
        ),
        pytest.param(
            "HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\nRetry-After: 99\r\nContent-Length: 4\r\n\r\nbusy",
            RequestRefusedError,
            '/v1/models/m responded HTTP 503 with text/plain; a model server responds {"error": …}',
            id="a gateway's overload",
        ),
        pytest.param(
            "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
            InvalidResponseError,
            '/v1/models/m responded HTTP 302 with no content type; a model server responds {"error": …}',
            id="redirect",
        ),
        pytest.param(
            f"HTTP/1.1 418 Teapot\r\n{JSON}Content-Length: 14\r\n\r\n" + '{"error": "t"}',
            RequestRefusedError,
            "UNKNOWN: t",
            id="status of no code",
        ),
        pytest.param(
            f"HTTP/1.1 200 OK\r\n{JSON}Content-Length: 2\r\n\r\n[]",
            InvalidResponseError,
            "/v1/models/m, 2 bytes, is not a JSON object",
            id="no object",
        ),
        pytest.param(
            f"HTTP/1.1 200 OK\r\n{JSON}Content-Length: 2\r\n\r\n" + "{}",
            InvalidResponseError,
            "the status is not a valid GetModelStatusResponse: KeyError('model_version_status')",
            id="other object",
        ),
        pytest.param(
            "",
            ConnectionFailedError,
            " over REST: the connection was closed; if the server requires TLS, use https://",
            id="hangs up",
        ),
        pytest.param("SSH-2.0\r\n", ConnectionFailedError, "is a model server running there?", id="no HTTP"),
    ],
)
def test_responses_that_are_not_of_the_api(
    respond_with: Callable[[str], int], response: str, error: type[ClientError], message: str
) -> None:
    with (
        Client(transport="rest", rest_api_port=respond_with(response), model="m") as client,
        pytest.raises(ClientError) as caught,
    ):
        client.status()
    assert error is caught.type
    assert str(caught.value).endswith(message)


STOPPING = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"]
ENDLESS = itertools.chain([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"], itertools.repeat(b"1\r\n[\r\n"))


@pytest.mark.parametrize("response", [STOPPING, ENDLESS], ids=["stopping", "endless"])
def test_a_body_that_does_not_end_is_deadline_exceeded(response: Iterable[bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                for piece in response:
                    connection.sendall(piece)
                done.wait(10)

        thread = threading.Thread(target=serve)
        thread.start()
        with (
            Client(transport="rest", rest_api_port=port, model="slow", timeout_s=0.2) as client,
            pytest.raises(DeadlineExceededError, match=r"over REST within 0\.2 s$"),
        ):
            client.status()
        done.set()
        thread.join()
