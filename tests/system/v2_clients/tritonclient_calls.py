"""Calls the server with every client of tritonclient; run in the environment that has it.

Usage: tritonclient_calls.py HTTP_ADDRESS GRPC_ADDRESS, of a server with half_plus_two (versions 1 and 3) and echo.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import sys

import ml_dtypes
import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcclient_aio
import tritonclient.http as httpclient
import tritonclient.http.aio as httpclient_aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

HTTP, GRPC = sys.argv[1:]
HALF, ECHO = "half_plus_two", "echo"
RELOAD = "HandleReloadConfigRequest"

TENSORS = {
    "float32": np.array([[0.5, np.inf], [-1, 3e-42]], np.float32),
    "float16": np.array([1.5, -2], np.float16),
    "bfloat16": np.array([1.5, -2], ml_dtypes.bfloat16),
    "bool": np.array([True, False]),
    "int8": np.array([[-128], [127]], np.int8),
    "uint16": np.array(65535, np.uint16),
    "string": np.array([b"\xff\x00", b"", "é".encode()], object),
}
BINARY_ONLY = ("float16", "bfloat16")


class Calls:
    """The same calls of each client; methods of the clients may be coroutines.

    Args:
        library: the module of the client.
        client: its client.
        is_http: whether it has the options of HTTP.
    """

    def __init__(self, library, client, is_http: bool) -> None:
        self.library, self.client, self.is_http = library, client, is_http

    async def call(self, method: str, *arguments, **options):
        result = getattr(self.client, method)(*arguments, **options)
        return await result if inspect.isawaitable(result) else result

    async def error(self, method: str, *arguments, **options) -> str:
        try:
            await self.call(method, *arguments, **options)
        except InferenceServerException as error:
            return f"{error.status()} {error.message()}"
        raise AssertionError(f"{method} has not failed")

    def input(self, name: str, array: np.ndarray, **options):
        made = self.library.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        made.set_data_from_numpy(array, **options)
        return made

    async def run(self) -> None:
        await self.describe()
        await self.infer()
        await self.fail()
        await self.call("close")

    async def describe(self) -> None:
        assert await self.call("is_server_live")
        assert await self.call("is_server_ready")
        assert await self.call("is_model_ready", HALF)
        assert await self.call("is_model_ready", HALF, "1")
        assert not await self.call("is_model_ready", HALF, "2")
        assert not await self.call("is_model_ready", "unknown")
        json = {} if self.is_http else {"as_json": True}
        server = await self.call("get_server_metadata", **json)
        assert "savedmodel-bakery" == server["name"], server
        assert "binary_tensor_data" in server["extensions"], server
        for version in ("", "1"):
            model = await self.call("get_model_metadata", HALF, version, **json)
            assert ["1", "3"] == model["versions"], model
            assert "tensorflow_savedmodel" == model["platform"], model
            [x] = model["inputs"]
            assert ("x", "FP32", [-1]) == (x["name"], x["datatype"], list(map(int, x["shape"]))), model
            assert ["y"] == [y["name"] for y in model["outputs"]], model
        chosen = {"query_params": {"signature_name": "two"}} if self.is_http else {"headers": {"signature-name": "two"}}
        model = await self.call("get_model_metadata", HALF, **chosen, **json)
        assert ["diff", "sum"] == [output["name"] for output in model["outputs"]], model
        config = await self.call("get_model_config", HALF, **json)
        assert HALF == config.get("config", config)["name"], config
        index = await self.call("get_model_repository_index", **json)
        rows = index if self.is_http else index["models"]
        found = {(row["name"], row["version"], row["state"]) for row in rows}
        assert {(HALF, "1", "READY"), (HALF, "3", "READY"), (ECHO, "1", "READY")} == found, index

    async def infer(self) -> None:
        x = self.input("x", np.array([1, 4], np.float32))
        result = await self.call("infer", HALF, [x], request_id="seven")
        np.testing.assert_array_equal(np.array([3.5, 5], np.float32), result.as_numpy("y"))
        response = result.get_response() if self.is_http else result.get_response(as_json=True)
        assert ("seven", HALF, "3") == (response["id"], response["model_name"], response["model_version"]), response
        result = await self.call("infer", HALF, [x], "1", timeout=10_000_000, priority=1)
        np.testing.assert_array_equal(np.array([2.5, 4], np.float32), result.as_numpy("y"))
        two = [self.input(name, np.array([value], np.float32)) for name, value in (("a", 3), ("b", 4))]
        parameters = {"signature_name": "two", "unknown": 7}
        outputs = [self.library.InferRequestedOutput("sum")]
        result = await self.call("infer", HALF, two, outputs=outputs, parameters=parameters)
        assert (7, None) == (result.as_numpy("sum"), result.as_numpy("diff"))
        for name, array in TENSORS.items():
            for binary in (True, False) if self.is_http and name not in BINARY_ONLY else (True,):
                await self.echo(name, array, {"binary_data": binary} if self.is_http else {})
        for algorithm in ("gzip", "deflate"):
            option = "request_compression_algorithm" if self.is_http else "compression_algorithm"
            result = await self.call("infer", HALF, [x], **{option: algorithm})
            np.testing.assert_array_equal(np.array([3.5, 5], np.float32), result.as_numpy("y"))

    async def echo(self, name: str, array: np.ndarray, options: dict[str, bool]) -> None:
        if name == "string" and not options.get("binary_data", True):
            array = np.array(["é", ""], object)
        outputs = [self.library.InferRequestedOutput("y", **options)]
        sent = [self.input("x", array, **options)]
        result = await self.call("infer", ECHO, sent, outputs=outputs, parameters={"signature_name": name})
        received = result.as_numpy("y")
        assert array.dtype == received.dtype, (name, options, received)
        np.testing.assert_array_equal(array, received)

    async def fail(self) -> None:
        missing, invalid, unimplemented = (
            ("404", "400", "501")
            if self.is_http
            else ("StatusCode.NOT_FOUND", "StatusCode.INVALID_ARGUMENT", "StatusCode.UNIMPLEMENTED")
        )
        x = self.input("x", np.array([1], np.float32))
        texts = {
            f"{missing} Servable not found for request: Latest(unknown)": await self.error("infer", "unknown", [x]),
            f"{missing} Servable not found for request: Specific({HALF}, 2)": await self.error("infer", HALF, [x], "2"),
            f'{invalid} invalid version "latest": must be': await self.error("infer", HALF, [x], "latest"),
            f'{invalid} input "x" is INT32; must be FP32 for signature "serving_default" of model "{HALF}" version 3': (
                await self.error("infer", HALF, [self.input("x", np.array([1], np.int32))])
            ),
            f'{invalid} input "z" is not an input of': await self.error(
                "infer", HALF, [self.input("z", np.array([1], np.float32))]
            ),
            f'{invalid} signature "unknown" not found in model "{HALF}" version 3; it has "classify", "none"': (
                await self.error("infer", HALF, [x], parameters={"signature_name": "unknown"})
            ),
            f'{invalid} output "z" is not an output of': await self.error(
                "infer", HALF, [x], outputs=[self.library.InferRequestedOutput("z")]
            ),
            f"{unimplemented} models cannot be loaded": await self.error("load_model", HALF),
            f"{unimplemented} models cannot be": await self.error("unload_model", HALF),
            f"{unimplemented} statistics are not supported": await self.error("get_inference_statistics", HALF),
            f"{unimplemented} shared memory is not": await self.error("get_system_shared_memory_status"),
            f'{unimplemented} output "y" is requested with the parameter classification': await self.error(
                "infer", HALF, [x], outputs=[self.library.InferRequestedOutput("y", class_count=1)]
            ),
        }
        for expected, text in texts.items():
            assert text.startswith(expected), (expected, text)
        assert RELOAD in await self.error("load_model", HALF)


async def run_aio() -> None:
    """Run the calls of both clients of asyncio."""
    await Calls(httpclient_aio, httpclient_aio.InferenceServerClient(HTTP), is_http=True).run()
    await Calls(grpcclient_aio, grpcclient_aio.InferenceServerClient(GRPC), is_http=False).run()


def stream() -> None:
    """Streams are rejected with a message that names the call to use."""
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(GRPC) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        x = grpcclient.InferInput("x", [1], "FP32").set_data_from_numpy(np.array([1], np.float32))
        client.async_stream_infer(HALF, [x])
        _, error = answers.get(timeout=30)
        client.stop_stream()
    assert "use ModelInfer" in str(error), error


asyncio.run(Calls(httpclient, httpclient.InferenceServerClient(HTTP), is_http=True).run())
asyncio.run(Calls(grpcclient, grpcclient.InferenceServerClient(GRPC), is_http=False).run())
asyncio.run(run_aio())
stream()
