"""The behaviour of a client, over every transport."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import canned_models
import numpy as np
import pytest

from savedmodel_bakery import (
    AccessDeniedError,
    Client,
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    Prediction,
    RequestRefusedError,
    VersionStatus,
)
from savedmodel_bakery.wire.status import Code

Connect = Callable[..., Client]

TITLES = {"grpc": "gRPC", "rest": "REST", "v2": "v2 (HTTP)", "v2-grpc": "v2 (gRPC)"}
OVER_HTTP = ("rest", "v2")
WITH_LABELS = pytest.mark.parametrize("transport", ["grpc", "rest"])

# Over HTTP, if several codes share an HTTP status, one of them represents all.
FOLDED = {
    Code.UNKNOWN: Code.INTERNAL,
    Code.DATA_LOSS: Code.INTERNAL,
    Code.ALREADY_EXISTS: Code.ABORTED,
    Code.FAILED_PRECONDITION: Code.INVALID_ARGUMENT,
    Code.OUT_OF_RANGE: Code.INVALID_ARGUMENT,
}


@pytest.fixture(params=TITLES)
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport in turn."""
    return request.param


def test_predict_halves_and_adds_two(connect: Connect, transport: str) -> None:
    prediction = connect().predict({"x": np.array([1.0, 2.0, 5.0], np.float32)})
    assert isinstance(prediction, Prediction)
    assert {"y"} == prediction.outputs.keys()
    assert [2.5, 3.0, 4.5] == prediction.outputs["y"].tolist()
    assert np.dtype(np.float32) == prediction.outputs["y"].dtype
    expected = ("half_plus_two", None if transport == "rest" else 3, "serving_default")
    assert expected == (prediction.model, prediction.version, prediction.signature)


def test_a_version_can_be_chosen_by_number(connect: Connect) -> None:
    assert 2 == connect(version=2).predict({"x": np.float32([2])}).version


@WITH_LABELS
def test_a_version_can_be_chosen_by_label(connect: Connect, transport: str) -> None:
    prediction = connect(label="stable").predict({"x": np.float32([2])})
    assert {"grpc": 2, "rest": None}[transport] == prediction.version


def test_a_model_name_may_contain_special_characters(connect: Connect) -> None:
    assert [3.0] == connect(model="a/b:c").predict({"x": np.float32([2])}).outputs["y"].tolist()


@WITH_LABELS
def test_a_label_may_contain_a_space(connect: Connect) -> None:
    assert [3.0] == connect(label="a b").predict({"x": np.float32([2])}).outputs["y"].tolist()


def test_outputs_have_the_same_types_and_values_over_every_transport(connect: Connect) -> None:
    outputs = connect("types").predict({"x": np.float32([1])}).outputs
    assert canned_models.TYPES.keys() == outputs.keys()
    for alias, expected in canned_models.TYPES.items():
        assert (alias, expected.dtype, expected.shape) == (alias, outputs[alias].dtype, outputs[alias].shape)
        np.testing.assert_array_equal(outputs[alias], expected, err_msg=alias)


def test_a_filter_keeps_the_outputs_it_names(connect: Connect) -> None:
    outputs = connect("types").predict({"x": np.float32([1])}, output_filter=["i64", "b"]).outputs
    assert {"b", "i64"} == outputs.keys()


@pytest.mark.parametrize(
    ("output_filter", "message"),
    [
        (["z"], "output tensor alias not found in signature: z Outputs expected to be in the set {y}."),
        (["y", "y"], "duplicate output tensor alias: y"),
    ],
    ids=["unknown", "twice"],
)
def test_an_invalid_filter_has_the_same_error(connect: Connect, output_filter: list[str], message: str) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        connect().predict({"x": np.float32([1])}, output_filter=output_filter)
    assert (Code.INVALID_ARGUMENT, message) == (caught.value.code, caught.value.message)


def test_zero_bytes_at_the_end_of_a_string_are_kept(connect: Connect) -> None:
    """Arrays of numpy's string types would drop them and so send another image."""
    with pytest.raises(RequestRefusedError, match="row 0 is no image"):
        connect("efficientnet_lite0").predict({"image": [b"horse\x00"]})


def test_requests_and_responses_may_be_larger_than_four_megabytes(connect: Connect) -> None:
    outputs = connect().predict({"x": np.full(1_500_000, 2, np.float32)}).outputs
    assert ((1_500_000,), 3.0, 3.0) == (outputs["y"].shape, outputs["y"].min(), outputs["y"].max())


def test_metadata_are_the_protobuf_json_of_the_rest_api(connect: Connect) -> None:
    expected = {
        "model_spec": {"name": "half_plus_two", "signature_name": "", "version": "3"},
        "metadata": {"signature_def": {"signature_def": canned_models.MODELS["half_plus_two"].signatures}},
    }
    assert expected == connect().metadata()


def test_status_lists_the_versions_newest_first(connect: Connect, transport: str) -> None:
    """In v2 a reason has no code."""
    code = Code.UNKNOWN if transport.startswith("v2") else Code.NOT_FOUND
    failed = VersionStatus(2, "END", code, "no\n\x1bsaved_model.pb")
    assert [VersionStatus(3, "AVAILABLE", Code.OK, ""), failed] == connect().status()
    assert [failed] == connect(version=2).status()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"model": "pets"}, Code.NOT_FOUND, "Servable not found for request: Latest(pets)"),
        ({"version": 9}, Code.NOT_FOUND, "Servable not found for request: Specific(half_plus_two, 9)"),
    ],
    ids=["model", "version"],
)
def test_a_refusal_has_the_servers_code_and_message(
    connect: Connect, options: dict[str, Any], code: Code, message: str
) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        connect(**options).predict({"x": np.float32([1])})
    assert (code, message) == (caught.value.code, caught.value.message)
    assert f"{code.name}: {message}" == str(caught.value)


@WITH_LABELS
def test_an_unknown_label_is_refused(connect: Connect) -> None:
    with pytest.raises(RequestRefusedError, match=r"^INVALID_ARGUMENT: Unrecognized servable version label: new$"):
        connect(label="new").predict({"x": np.float32([1])})


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK], ids=lambda code: code.name)
def test_every_status_code_is_the_servers(connect: Connect, transport: str, code: Code) -> None:
    with pytest.raises(ClientError) as caught:
        connect(f"refuse_{code.name}").predict({"x": np.float32([1])})
    if code is Code.DEADLINE_EXCEEDED:
        assert (DeadlineExceededError, "refused: DEADLINE_EXCEEDED") == (caught.type, str(caught.value))
    else:
        is_about_the_token = code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED)
        assert caught.type is (AccessDeniedError if is_about_the_token else RequestRefusedError)
        expected = FOLDED.get(code, code) if transport in OVER_HTTP else code
        assert (expected, f"refused: {code.name}") == (caught.value.code, caught.value.message)


def test_a_response_that_takes_too_long_is_deadline_exceeded(connect: Connect, peer: Any, transport: str) -> None:
    port = peer.rest_port if transport in OVER_HTTP else peer.grpc_port
    with pytest.raises(DeadlineExceededError) as caught:
        connect("slow", timeout_s=0.2).predict({"x": np.float32([1])})
    assert f"no response from 127.0.0.1:{port} over {TITLES[transport]} within 0.2 s" == str(caught.value)


def test_a_server_that_is_down_is_reported_at_once(connect: Connect, closed_port: int, transport: str) -> None:
    """Also for the second call, although a gRPC channel backs off after the first."""
    client = connect(target=f"127.0.0.1:{closed_port}", timeout_s=60.0)
    for _ in range(2):
        with pytest.raises(ConnectionFailedError) as caught:
            client.status()
        expected = (
            f"cannot connect to 127.0.0.1:{closed_port} over {TITLES[transport]}; is a model server running there?"
        )
        assert expected == str(caught.value)
        assert_one_cause(caught.value)


def assert_one_cause(error: BaseException) -> None:
    """Check that a traceback has one cause, without frames, and none of the transport's frames."""
    cause = error.__cause__
    assert cause is not None
    assert (None, None, None) == (cause.__cause__, cause.__context__, cause.__traceback__)
    assert not [frame for frame in traceback.extract_tb(error.__traceback__) if "transports" in frame.filename]


def test_calls_of_a_closed_client_are_runtime_errors(connect: Connect) -> None:
    with connect() as client:
        client.status()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.status()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"target": "http://x/v1"}, 'invalid target "x/v1": must be HOST or', id="URL"),
        pytest.param({"target": ""}, 'invalid target ""', id="no target"),
        pytest.param({"target": "x:99999"}, "invalid port 99999: must be between 1 and 65535", id="port"),
        pytest.param({"version": 1, "label": "a"}, 'version 1 and label "a" exclude each other', id="both"),
        pytest.param({"version": -1}, "invalid version -1: must be between 0 and 9223372036854775807", id="version"),
        pytest.param({"model": ""}, "the model name and the version label must not be empty", id="no model"),
        pytest.param({"label": ""}, "the model name and the version label must not be empty", id="no label"),
        pytest.param({"model": "\udc80"}, "surrogates not allowed", id="not UTF-8"),
        pytest.param({"timeout_s": 0}, "invalid timeout_s 0: must be above 0 and at most 86400", id="no time"),
        pytest.param({"timeout_s": float("nan")}, "invalid timeout_s nan", id="NaN"),
        pytest.param(
            {"transport": "x"},
            'invalid transport "x": must be one of "grpc", "rest", "v2", "v2-grpc"; for AMQP use AmqpClient',
            id="transport",
        ),
    ],
)
def test_invalid_arguments_are_value_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        Client(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize("variable", ["http_proxy", "grpc_proxy"])
def test_loopback_addresses_bypass_the_proxy(connect: Connect, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert connect().status()


def test_a_port_of_the_other_transport_is_a_value_error(transport: str) -> None:
    own, other = ("rest_api_port", "port") if transport in OVER_HTTP else ("port", "rest_api_port")
    with pytest.raises(ValueError, match=f'the port of the other transport was given: "{transport}" uses {own}$'):
        Client(transport=transport, **{other: 9000})
