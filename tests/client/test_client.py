"""What the client promises, over every transport."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import canned_models
import numpy as np
import pytest

from savedmodel_bakery import client
from savedmodel_bakery.client import (
    Classification,
    Client,
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidResponseError,
    Prediction,
    RequestRefusedError,
    ScoredLabel,
    VersionStatus,
)
from savedmodel_bakery.client.images import read_classifications
from savedmodel_bakery.wire.status import Code

Connect = Callable[..., Client]

SORREL = ScoredLabel("sorrel", 0.75, 339)
ZEBRA = ScoredLabel("zebra", 0.125, 340)
OX = ScoredLabel("ox", 0.0625, 345)


def test_the_public_names_are_these() -> None:
    expected = [
        "AmqpClient",
        "AsyncAmqpClient",
        "AsyncClient",
        "Classification",
        "Client",
        "ClientError",
        "ConnectionFailedError",
        "DeadlineExceededError",
        "InvalidResponseError",
        "Prediction",
        "RequestRefusedError",
        "ScoredLabel",
        "VersionStatus",
    ]
    assert expected == client.__all__
    assert expected == [getattr(client, name).__name__ for name in expected]
    assert set(expected) <= set(dir(client))


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'savedmodel_bakery\.client' has no attribute 'Clint'"):
        _ = client.Clint


def test_predict_halves_and_adds_two(connect: Connect, transport: str) -> None:
    prediction = connect().predict({"x": np.array([1.0, 2.0, 5.0], np.float32)})
    assert isinstance(prediction, Prediction)
    assert {"y"} == prediction.outputs.keys()
    assert [2.5, 3.0, 4.5] == prediction.outputs["y"].tolist()
    assert np.dtype(np.float32) == prediction.outputs["y"].dtype
    expected = ("half_plus_two", 3 if transport == "grpc" else None, "serving_default")
    assert expected == (prediction.model, prediction.version, prediction.signature)


@pytest.mark.parametrize(
    ("options", "version"),
    [({"version": 2}, {"grpc": 2, "rest": 2}), ({"label": "stable"}, {"grpc": 2, "rest": None})],
    ids=["by number", "by label"],
)
def test_a_version_can_be_chosen(
    connect: Connect, transport: str, options: dict[str, Any], version: dict[str, int | None]
) -> None:
    prediction = connect(**options).predict({"x": np.float32([2])})
    assert version[transport] == prediction.version


@pytest.mark.parametrize(
    "options", [{"model": "a/b:c"}, {"label": "a b"}], ids=["model with / and :", "label with a space"]
)
def test_names_with_special_characters_arrive(connect: Connect, options: dict[str, Any]) -> None:
    assert [3.0] == connect(**options).predict({"x": np.float32([2])}).outputs["y"].tolist()


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
        (
            ["z"],
            "output tensor alias not found in signature: z Outputs expected to be in the set {y}.",
        ),
        (["y", "y"], "duplicate output tensor alias: y"),
    ],
    ids=["unknown", "twice"],
)
def test_a_wrong_filter_is_refused_in_the_same_words(connect: Connect, output_filter: list[str], message: str) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        connect().predict({"x": np.float32([1])}, output_filter=output_filter)
    assert (Code.INVALID_ARGUMENT, message) == (caught.value.code, caught.value.message)


def test_zero_bytes_at_the_end_of_a_string_arrive(connect: Connect) -> None:
    """Arrays of numpy's own string types would drop them, and serve another image."""
    with pytest.raises(RequestRefusedError, match="row 0 is no image"):
        connect("efficientnet_lite0").predict({"image": [b"horse\x00"]})


def test_more_than_four_megabytes_go_both_ways(connect: Connect) -> None:
    outputs = connect().predict({"x": np.full(1_500_000, 2, np.float32)}).outputs
    assert ((1_500_000,), 3.0, 3.0) == (outputs["y"].shape, outputs["y"].min(), outputs["y"].max())


def test_images_get_a_label_each(connect: Connect) -> None:
    expected = [Classification(True, None, "sorrel"), Classification(True, None, "tabby")]
    assert expected == connect("efficientnet_lite0").classify_images([b"horse", b"cat"])


def test_an_image_can_be_a_path(connect: Connect, tmp_path: Path) -> None:
    photo = tmp_path / "horse.jpg"
    photo.write_bytes(b"horse")
    [answer] = connect("efficientnet_lite0").classify_images([photo])
    assert "sorrel" == answer.label


@pytest.mark.parametrize(
    ("options", "top"),
    [
        ({"top_k": 2}, (SORREL, ZEBRA)),
        ({"top_k": 3}, (SORREL, ZEBRA, OX)),
        ({"signature": "top_k"}, (SORREL, ZEBRA, OX)),
        ({"signature": "top_k", "top_k": 1}, (SORREL,)),
    ],
    ids=["best two", "all three", "by signature", "both"],
)
def test_scored_labels_come_best_first(connect: Connect, options: dict[str, Any], top: tuple[ScoredLabel, ...]) -> None:
    assert [Classification(True, None, "sorrel", top)] == connect("efficientnet_lite0").classify_images(
        [b"horse"], **options
    )


def test_a_bad_image_costs_the_others_nothing_in_top_k(connect: Connect) -> None:
    answers = connect("efficientnet_lite0").classify_images([b"bad", b"horse"], top_k=1)
    assert [
        Classification(False, "no image", None),
        Classification(True, None, "sorrel", (SORREL,)),
    ] == answers


def test_a_bad_image_fails_the_request_for_labels_alone(connect: Connect) -> None:
    with pytest.raises(RequestRefusedError, match=r"^INVALID_ARGUMENT: row 1 is no image"):
        connect("efficientnet_lite0").classify_images([b"horse", b"bad"])


def test_no_images_are_not_asked_about(connect: Connect, peer: Any) -> None:
    before = peer.requests
    assert [] == connect("efficientnet_lite0").classify_images([])
    assert before == peer.requests


def test_more_classes_than_the_servable_has_are_refused_with_both_numbers(connect: Connect) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        connect("efficientnet_lite0").classify_images([b"horse"], top_k=4)
    expected = 'top_k 4 is too large: signature "top_k" of model "efficientnet_lite0" returns 3 classes'
    assert (Code.INVALID_ARGUMENT, expected) == (caught.value.code, caught.value.message)


def test_a_signature_that_classifies_no_images_is_named_with_its_outputs() -> None:
    prediction = Prediction({"y": np.zeros(1), "z": np.zeros(1)}, "m", 1, "s")
    with pytest.raises(InvalidResponseError) as caught:
        read_classifications(prediction, batch=1, top_k=None)
    expected = (
        'signature "s" of model "m" does not classify images: it has the outputs "y", "z"; expected "output_0" alone, '
        'or "labels", "scores", "class_ids", "ok", "error"'
    )
    assert expected == str(caught.value)


def test_metadata_are_the_protobuf_json_of_the_rest_api(connect: Connect) -> None:
    expected = {
        "model_spec": {"name": "half_plus_two", "signature_name": "", "version": "3"},
        "metadata": {"signature_def": {"signature_def": canned_models.MODELS["half_plus_two"].signatures}},
    }
    assert expected == connect().metadata()


def test_status_lists_the_versions_newest_first(connect: Connect) -> None:
    failed = VersionStatus(2, "END", Code.NOT_FOUND, "no\nsaved_model.pb")
    assert [VersionStatus(3, "AVAILABLE", Code.OK, ""), failed] == connect().status()
    assert [failed] == connect(version=2).status()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"model": "pets"}, Code.NOT_FOUND, "Servable not found for request: Latest(pets)"),
        ({"version": 9}, Code.NOT_FOUND, "Servable not found for request: Specific(half_plus_two, 9)"),
        ({"label": "new"}, Code.INVALID_ARGUMENT, "Unrecognized servable version label: new"),
    ],
    ids=["model", "version", "label"],
)
def test_a_refusal_has_the_servers_code_and_words(
    connect: Connect, options: dict[str, Any], code: Code, message: str
) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        connect(**options).predict({"x": np.float32([1])})
    assert (code, message) == (caught.value.code, caught.value.message)
    assert f"{code.name}: {message}" == str(caught.value)


def test_an_answer_that_takes_too_long_is_deadline_exceeded(connect: Connect, peer: Any, transport: str) -> None:
    name, port = {"grpc": ("gRPC", peer.grpc_port), "rest": ("REST", peer.rest_port)}[transport]
    with pytest.raises(DeadlineExceededError) as caught:
        connect("slow", timeout_s=0.2).predict({"x": np.float32([1])})
    assert f"no response from 127.0.0.1:{port} over {name} within 0.2 s" == str(caught.value)


def test_a_server_that_is_down_is_reported_at_once(connect: Connect, closed_port: int, transport: str) -> None:
    """The second ask too, although a gRPC channel then backs off."""
    asking = connect(target=f"127.0.0.1:{closed_port}", timeout_s=60.0)
    name = {"grpc": "gRPC", "rest": "REST"}[transport]
    for _ in range(2):
        with pytest.raises(ConnectionFailedError) as caught:
            asking.status()
        expected = f"cannot connect to 127.0.0.1:{closed_port} over {name}; is a model server running there?"
        assert expected == str(caught.value)
        assert caught.value.__cause__ is not None


def test_asking_a_closed_client_is_a_runtime_error(connect: Connect) -> None:
    with connect() as asking:
        asking.status()
    with pytest.raises(RuntimeError, match="the client is closed"):
        asking.status()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"target": "http://x"}, 'invalid target "http://x": must be HOST or', id="URL"),
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
            'invalid transport "x": must be "grpc" or "rest"; for AMQP use AmqpClient',
            id="transport",
        ),
    ],
)
def test_arguments_that_cannot_be_asked_with_are_value_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        Client(**options)
    assert message in str(caught.value)


def test_top_k_below_one_is_a_value_error(connect: Connect) -> None:
    with pytest.raises(ValueError, match="invalid top_k 0: must be at least 1"):
        connect().classify_images([b"horse"], top_k=0)


def test_an_image_that_is_neither_bytes_nor_a_path_is_a_type_error(connect: Connect) -> None:
    with pytest.raises(TypeError, match="an image must be bytes or a path, not int"):
        connect().classify_images([7])  # type: ignore[list-item]


@pytest.mark.parametrize("images", ["horse.jpg", b"horse"], ids=["one path", "one image"])
def test_one_image_where_a_list_is_wanted_is_a_type_error(connect: Connect, images: Any) -> None:
    with pytest.raises(TypeError, match="images must be a list of bytes or paths"):
        connect().classify_images(images)


@pytest.mark.parametrize("variable", ["http_proxy", "grpc_proxy"])
def test_a_proxy_is_not_asked_for_this_machines_own_addresses(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert connect().status()


@pytest.mark.parametrize(
    "options", [{"transport": "rest", "port": 8500}, {"transport": "grpc", "rest_api_port": 8501}], ids=["rest", "grpc"]
)
def test_a_port_of_the_other_transport_is_a_value_error(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the port of the other transport was given"):
        Client(**options)
