"""Goldens: the requests and responses in a version, and warm-up requests in the official format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import classification_pb2, predict_pb2, prediction_log_pb2

from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.validation import goldens
from savedmodel_bakery.exporter.validation.session import predict_request, write_records
from savedmodel_bakery.wire import version_folder

SIGNATURES = {"classify": 1, "pixels": 1, "preprocess": 1, "preview": 1, "serving_default": 1, "top_k": 4}


@pytest.fixture(scope="module")
def version(lite0: Path) -> Path:
    return lite0 / "1"


def exchanges(version: Path, signature: str) -> list[dict[str, Any]]:
    lines = (version / version_folder.GOLDENS / f"{signature}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def predict_exchanges(version: Path, signature: str) -> list[tuple[Any, dict[str, Any]]]:
    """Return requests and outputs, parsed by the official classes."""
    parsed = []
    for exchange in exchanges(version, signature):
        request = json_format.ParseDict(exchange["request"], predict_pb2.PredictRequest())
        response = json_format.ParseDict(exchange["response"], predict_pb2.PredictResponse())
        parsed.append((request, {alias: tf.make_ndarray(tensor) for alias, tensor in response.outputs.items()}))
    return parsed


def test_the_index_names_every_signature(version: Path) -> None:
    index = json.loads((version / version_folder.GOLDENS / "index.json").read_text())
    assert "efficientnet_lite0" == index["model"]
    assert SIGNATURES == {name: entry["requests"] for name, entry in index["signatures"].items()}
    for name, count in SIGNATURES.items():
        assert count == len(exchanges(version, name))
        assert f"{name}.jsonl" == index["signatures"][name]["file"]


def test_every_photo_has_a_request_and_its_response(version: Path) -> None:
    mixed, *single = predict_exchanges(version, "top_k")
    photos = sorted((photo.read_bytes() for photo in resources.example_photos()), key=len)
    assert photos == [request.inputs["image"].string_val[0] for request, _ in single]
    assert [b"missile", b"tiger cat", b"espresso"] == [outputs["labels"][0][0] for _, outputs in single]
    request, outputs = mixed
    assert [photos[0], goldens.NOT_AN_IMAGE] == list(request.inputs["image"].string_val)
    assert [True, False] == outputs["ok"].tolist()
    assert outputs["error"][1].startswith(b"neither base64 nor a supported image format")


def test_classify_has_a_classify_request(version: Path) -> None:
    (exchange,) = exchanges(version, "classify")
    request = json_format.ParseDict(exchange["request"], classification_pb2.ClassificationRequest())
    response = json_format.ParseDict(exchange["response"], classification_pb2.ClassificationResponse())
    assert "efficientnet_lite0" == request.model_spec.name
    assert 1 == len(request.input.example_list.examples)
    (row,) = response.result.classifications
    assert "missile" == row.classes[0].label


def test_the_preview_golden_has_no_picture(version: Path) -> None:
    ((request, outputs),) = predict_exchanges(version, "preview")
    assert ["ok", "error"] == list(request.output_filter)
    assert {"ok", "error"} == outputs.keys()


def test_the_warm_up_file_has_the_requests_to_the_usual_signatures(version: Path) -> None:
    records = tf.data.TFRecordDataset(str(version / version_folder.WARMUP)).as_numpy_iterator()
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records]
    signatures = [log.predict_log.request.model_spec.signature_name for log in logs]
    warmed_up = ("serving_default", "top_k")
    assert [name for name in warmed_up for _ in range(SIGNATURES[name])] == signatures
    assert not any(log.predict_log.HasField("response") for log in logs)


def test_the_parity_report_is_in_the_version(version: Path) -> None:
    report = json.loads((version / "assets.extra" / "parity.json").read_text())
    assert report["is_within"]
    assert ["chelsea.png", "coffee.png", "rocket.jpg"] == [photo["photo"] for photo in report["photos"]]


def test_a_full_disk_is_an_oserror_as_for_other_files() -> None:
    """`writing` turns it into one line that names the folder."""
    with pytest.raises(OSError, match="No space left on device"):
        write_records(Path("/dev/full"), [predict_request("top_k", {})])
