"""A baked classifier with real weights returns the right labels for real photos, to every client."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import requests
import tensorflow as tf
from server_process import ServerProcess, free_port
from tensorflow_serving.apis import classification_pb2, predict_pb2, prediction_service_pb2_grpc

from savedmodel_bakery import Client

NAME = "efficientnet_lite0"


@pytest.fixture(scope="module")
def server(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = (f"--model_name={NAME}", f"--model_base_path={lite0}")
    with ServerProcess(*flags, log=tmp_path_factory.mktemp("classifier") / "log") as running:
        yield running


@pytest.fixture(scope="module")
def coffee(clone: Path) -> Path:
    return clone / "examples" / "coffee.png"


@pytest.fixture(scope="module")
def chelsea(clone: Path) -> Path:
    return clone / "examples" / "chelsea.png"


def run_client(server: ServerProcess, *arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    ports = ("--port", str(server.port), "--rest_api_port", str(server.rest_api_port))
    command = [sys.executable, "-m", "savedmodel_bakery.client", *ports, *map(str, arguments)]
    result = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
    return subprocess.CompletedProcess(command, result.returncode, result.stdout.decode(), result.stderr.decode())


class TestUnmodifiedClients:
    """Clients written for TensorFlow Serving, without any of our code."""

    def test_official_stubs_with_web_safe_base64(self, server: ServerProcess, coffee: Path) -> None:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = NAME
        request.model_spec.signature_name = "serving_default"
        image = base64.urlsafe_b64encode(coffee.read_bytes())
        request.inputs["image"].CopyFrom(tf.make_tensor_proto([image]))
        with grpc.insecure_channel(server.target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            response = stub.Predict(request, timeout=30)
        assert ["output_0"] == list(response.outputs)
        assert [b"espresso"] == list(response.outputs["output_0"].string_val)

    def test_rest_with_web_safe_base64(self, server: ServerProcess, coffee: Path) -> None:
        body = {"inputs": {"image": [base64.urlsafe_b64encode(coffee.read_bytes()).decode()]}}
        response = requests.post(f"{server.url}/v1/models/{NAME}:predict", json=body, timeout=30)
        assert {"outputs": ["espresso"]} == response.json()

    def test_rest_metadata_of_a_version(self, server: ServerProcess) -> None:
        response = requests.get(f"{server.url}/v1/models/{NAME}/versions/1/metadata", timeout=30).json()
        assert {"name": NAME, "signature_name": "", "version": "1"} == response["model_spec"]
        signatures = response["metadata"]["signature_def"]["signature_def"]
        assert {"classify", "pixels", "preprocess", "preview", "serving_default", "top_k"} < set(signatures)
        assert "DT_STRING" == signatures["serving_default"]["inputs"]["image"]["dtype"]
        assert ["output_0"] == list(signatures["serving_default"]["outputs"])

    def test_photos_as_they_are(self, server: ServerProcess, coffee: Path, chelsea: Path) -> None:
        url = f"{server.url}/photos/{NAME}"
        alone = requests.post(url, data=coffee.read_bytes(), timeout=30).json()
        files = [("file", path.open("rb")) for path in (coffee, chelsea, Path(__file__))]
        together = requests.post(f"{url}/versions/1", files=files, timeout=30).json()
        for _, file in files:
            file.close()
        with Client(server.target, model=NAME) as client:
            expected = client.classify([coffee, chelsea, Path(__file__)])
        assert (1, "classify", "top_k") == (alone["version"], alone["task"], alone["signature"])
        assert pytest.approx(0.945, abs=0.001) == alone["results"][0]["top"][0]["score"]
        assert [result.label for result in expected] == [row["label"] for row in together["results"]]
        assert [result.error for result in expected] == [row["error"] for row in together["results"]]
        for result, row in zip(expected, together["results"], strict=True):
            assert [scored.class_id for scored in result.top] == [scored["class_id"] for scored in row["top"]]
            assert [scored.score for scored in result.top] == [scored["score"] for scored in row["top"]]

    def test_classify_with_the_official_stubs(self, server: ServerProcess, coffee: Path) -> None:
        request = classification_pb2.ClassificationRequest()
        request.model_spec.name, request.model_spec.signature_name = NAME, "classify"
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[coffee.read_bytes()]))
        example = tf.train.Example(features=tf.train.Features(feature={"image/encoded": feature}))
        request.input.example_list.examples.append(example)
        with grpc.insecure_channel(server.target) as channel:
            response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Classify(request, timeout=30)
        best = response.result.classifications[0].classes[0]
        assert "espresso" == best.label
        assert 0.945 == pytest.approx(best.score, abs=0.01)

    def test_curl_with_raw_bytes_as_b64(self, server: ServerProcess, chelsea: Path, tmp_path: Path) -> None:
        image = {"b64": base64.b64encode(chelsea.read_bytes()).decode()}
        body = tmp_path / "body.json"
        body.write_text(json.dumps({"signature_name": "top_k", "instances": [{"image": image}]}))
        command = ["curl", "--silent", "--fail", "--data-binary", f"@{body}", f"{server.url}/v1/models/{NAME}:predict"]
        response = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout)
        (row,) = response["predictions"]
        assert (["tiger cat", "Egyptian cat"], [282, 285]) == (row["labels"][:2], row["class_ids"][:2])
        assert [0.415, 0.332] == pytest.approx(row["scores"][:2], abs=0.01)
        assert (True, "") == (row["ok"], row["error"])


class TestOurClient:
    """`python -m client` and `Client`, over every transport."""

    @pytest.mark.parametrize("transport", ["GRPC", "REST", "v2"])
    def test_the_default_output_is_the_best_class(self, server: ServerProcess, coffee: Path, transport: str) -> None:
        result = run_client(server, "--format", transport, "-i", coffee)
        assert ("espresso\t0.945\t967\n", "", 0) == (result.stdout, result.stderr, result.returncode)

    @pytest.mark.parametrize("transport", ["GRPC", "REST"])
    def test_labels_with_scores(self, server: ServerProcess, chelsea: Path, transport: str) -> None:
        result = run_client(server, "-f", transport, "--top-k", "2", "-i", chelsea)
        assert "tiger cat\t0.415\t282\nEgyptian cat\t0.332\t285\n" == result.stdout

    @pytest.mark.parametrize("transport", ["GRPC", "REST"])
    def test_an_invalid_image_does_not_affect_the_others(
        self, server: ServerProcess, coffee: Path, chelsea: Path, tmp_path: Path, transport: str
    ) -> None:
        bad = tmp_path / "bad.jpg"
        bad.write_bytes(b"\xff\xd8\xff" + bytes(100))
        result = run_client(server, "-f", transport, "-i", coffee, "-i", bad, "-i", "-", stdin=chelsea.read_bytes())
        assert f"{coffee}\tespresso\t0.945\t967\n-\ttiger cat\t0.415\t282\n" == result.stdout
        assert 1 == result.returncode
        (line,) = result.stderr.splitlines()
        assert "damaged, truncated or of an unsupported kind: the image file cannot be decoded" in line

    @pytest.mark.parametrize("transport", ["grpc", "rest", "v2", "v2-grpc"])
    def test_the_library_returns_the_same_over_each(
        self, server: ServerProcess, coffee: Path, chelsea: Path, transport: str
    ) -> None:
        with Client(transport=transport, port=server.port, rest_api_port=server.rest_api_port, model=NAME) as client:
            first, bad, last = client.classify([coffee, b"no, image", chelsea.read_bytes()], top_k=1)
        assert ("espresso", "tiger cat") == (first.label, last.label)
        assert [967, 282] == [first.top[0].class_id, last.top[0].class_id]
        assert (False, "neither base64 nor a supported image format: it starts with 6e 6f 2c 20 69 6d 61 67") == (
            bad.ok,
            bad.error,
        )

    def test_metadata_and_status_are_the_same_over_each(self, server: ServerProcess) -> None:
        ports = {"port": server.port, "rest_api_port": server.rest_api_port}
        answers = []
        for transport in ("grpc", "rest", "v2", "v2-grpc"):
            with Client(transport=transport, model=NAME, **ports) as client:
                answers.append((client.metadata(), client.status()))
        assert [answers[0]] * 4 == answers
        assert NAME == answers[0][0]["model_spec"]["name"]

    @pytest.mark.parametrize("transport", ["GRPC", "REST"])
    def test_an_unknown_model_exits_1_with_one_line(self, server: ServerProcess, coffee: Path, transport: str) -> None:
        result = run_client(server, "-f", transport, "-m", "pets", "-i", coffee)
        assert 1 == result.returncode
        assert "Servable not found for request: Latest(pets)" in result.stderr
        assert 1 == len(result.stderr.splitlines())

    @pytest.mark.parametrize("transport", ["GRPC", "REST"])
    def test_an_unreachable_server_exits_3_with_one_line(self, coffee: Path, transport: str) -> None:
        port = str(free_port())
        ports = ["--port", port, "--rest_api_port", port]
        command = [sys.executable, "-m", "savedmodel_bakery.client", "-f", transport, *ports, "-i", coffee]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ("", 3) == (result.stdout, result.returncode)
        assert f"cannot connect to 127.0.0.1:{port}" in result.stderr
        assert 1 == len(result.stderr.splitlines())


def test_an_invalid_row_fails_alone_in_top_k_but_fails_serving_default(server: ServerProcess, coffee: Path) -> None:
    image = {"b64": base64.b64encode(coffee.read_bytes()).decode()}
    url = f"{server.url}/v1/models/{NAME}:predict"
    body = {"signature_name": "top_k", "inputs": [image, "", image]}
    outputs = requests.post(url, json=body, timeout=30).json()["outputs"]
    assert [True, False, True] == outputs["ok"]
    assert ["", "empty: no bytes were sent", ""] == outputs["error"]
    assert [967, -1, 967] == [row[0] for row in outputs["class_ids"]]
    alone = requests.post(url, json={"signature_name": "top_k", "inputs": [image]}, timeout=30).json()["outputs"]
    assert outputs["scores"][2] == pytest.approx(outputs["scores"][0], abs=1e-7)
    assert alone["scores"][0] == pytest.approx(outputs["scores"][0], abs=1e-6)
    response = requests.post(url, json={"inputs": [image, "", image]}, timeout=30)
    assert 400 == response.status_code
    assert "image 1 is empty: no bytes were sent" in response.json()["error"]


def test_classify_writes_a_row_for_each_photo_of_a_folder(server: ServerProcess, clone: Path, tmp_path: Path) -> None:
    result = run_client(server, "classify", clone / "examples", "--out", tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert (0, {"chelsea.png": 282, "coffee.png": 967, "rocket.jpg": 657}) == (
        result.returncode,
        {Path(row["image"]).name: row["top"][0]["class_id"] for row in rows if row["ok"]},
    )


def test_the_saved_model_also_loads_with_tf_saved_model_load(lite0: Path, coffee: Path) -> None:
    loaded = tf.saved_model.load(str(lite0 / "1"))
    outputs = loaded.signatures["serving_default"](image=tf.constant([coffee.read_bytes()]))
    assert [b"espresso"] == outputs["output_0"].numpy().tolist()
