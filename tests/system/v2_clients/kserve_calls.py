"""Calls the server with the clients of KServe, over HTTP and gRPC; run in the environment that has them.

Usage: kserve_calls.py HTTP_ADDRESS GRPC_ADDRESS, of a server with half_plus_two (versions 1 and 3) and echo.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

HTTP, GRPC = f"http://{sys.argv[1]}", sys.argv[2]
HALF = "half_plus_two"


def request(array: np.ndarray, datatype: str = "FP32", *, binary: bool = True, **options) -> InferRequest:
    x = InferInput("x", list(array.shape), datatype)
    x.set_data_from_numpy(array, binary_data=binary)
    return InferRequest(options.pop("model", HALF), [x], **options)


async def check_error(call: Awaitable[object]) -> None:
    """Check that a call with the wrong datatype fails with the server's message."""
    try:
        await call
    except (grpc.RpcError, httpx.HTTPStatusError) as error:
        text = str(error)
    else:
        text = "no error"
    assert 'input "x" is INT32; must be FP32' in text, text


async def over_http() -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_live(HTTP) is True
    assert await client.is_server_ready(HTTP) is True
    assert await client.is_model_ready(HTTP, HALF)
    assert not await client.is_model_ready(HTTP, "unknown")
    for binary in (True, False):
        for outputs in (None, [RequestedOutput("y", {"binary_data": binary})]):
            sent = request(np.array([1, 4], np.float32), binary=binary, request_id="seven", request_outputs=outputs)
            response = await client.infer(HTTP, sent, model_name=HALF)
            assert ("seven", HALF) == (response.id, response.model_name), response
            assert [3.5, 5] == response.outputs[0].as_numpy().tolist(), response
    empty = request(np.empty([0], np.float32))
    assert [0] == (await client.infer(HTTP, empty, model_name=HALF)).outputs[0].shape
    strings = request(
        np.array(["é".encode(), b""], object),  # the client reads UTF-8 only
        "BYTES",
        model="echo",
        parameters={"signature_name": "string"},
        request_outputs=[RequestedOutput("y", {"binary_data": True})],
    )
    response = await client.infer(HTTP, strings, model_name="echo")
    assert ["é", ""] == response.outputs[0].data, response
    await check_error(client.infer(HTTP, request(np.array([1], np.int32), "INT32"), model_name=HALF))
    await client.close()


async def over_grpc() -> None:
    async with InferenceGRPCClient(GRPC) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready(HALF)
        assert not await client.is_model_ready("unknown")
        for binary in (True, False):
            response = await client.infer(request(np.array([1, 4], np.float32), binary=binary, request_id="seven"))
            assert ("seven", HALF) == (response.id, response.model_name), response
            assert [3.5, 5] == response.outputs[0].as_numpy().tolist(), response
        two = [InferInput(name, [1], "FP32", data=[value]) for name, value in (("a", 3.0), ("b", 4.0))]
        response = await client.infer(InferRequest(HALF, two, parameters={"signature_name": "two"}))
        assert {"sum": [7], "diff": [-1]} == {output.name: output.as_numpy().tolist() for output in response.outputs}
        await check_error(client.infer(request(np.array([1], np.int32), "INT32")))


asyncio.run(over_http())
asyncio.run(over_grpc())
