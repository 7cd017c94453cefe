"""The metrics of a real server with a baked model follow its calls."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import image_bombs
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from server_process import ServerProcess

from savedmodel_bakery.serving.access.tokens import Role, Token, format_token, hash_secret
from savedmodel_bakery.wire.schema import METHODS

NAME = "efficientnet_lite0"
MAX_ROWS = 8
_LIMITS = {"ci": None, "slow": 0.001}

Values = dict[tuple[str, frozenset[str]], float]
"""By name and the values of the labels."""


@pytest.fixture(scope="module")
def server(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with metrics, tokens and limits, which times the stages of every second run."""
    root = tmp_path_factory.mktemp("metrics")
    monitoring, tokens = root / "monitoring", root / "tokens.toml"
    monitoring.write_text('prometheus_config { enable: true path: "/metrics" }')
    roles = frozenset({Role.PREDICT, Role.METRICS})
    entries = [
        Token(name, hash_secret(name), roles, None, requests_per_second=limit) for name, limit in _LIMITS.items()
    ]
    tokens.write_text("\n".join(map(format_token, entries)))
    flags = (
        f"--model_name={NAME}",
        f"--model_base_path={lite0}",
        "--enable_model_warmup=false",
        f"--monitoring_config_file={monitoring}",
        f"--auth_tokens_file={tokens}",
        f"--max_rows_per_request={MAX_ROWS}",
        "--stage_sample_interval=2",
    )
    with ServerProcess(*flags, log=root / "log") as running:
        yield running


def ask(server: ServerProcess, token: str = "ci", **body: object) -> int:
    """Send a request to the model and return its HTTP status."""
    return requests.post(
        f"{server.url}/v1/models/{NAME}:predict",
        json=body,
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    ).status_code


def values(server: ServerProcess) -> Values:
    text = requests.get(f"{server.url}/metrics", headers={"Authorization": "Bearer ci"}, timeout=30).text
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("bakery_") and not sample.name.endswith("_bucket")
    }


def growth(server: ServerProcess, call: Callable[[], object]) -> Values:
    """Return by how much each value grows during a call; without the token's, which reading the page changes too."""
    before = values(server)
    call()
    return {
        key: value - before.get(key, 0)
        for key, value in values(server).items()
        if value != before.get(key, 0) and key[0] != "bakery_token_calls_total"
    }


def key(name: str, *labels: str) -> tuple[str, frozenset[str]]:
    return f"bakery_{name}", frozenset(labels)


def images(*, ok: int = 0, **others: int) -> Values:
    """The growth of the counters of images; `failed` is the outcome, others are reasons of bad images."""
    grown = {key("images_total", NAME, "1", "ok", ""): ok} if ok else {}
    for reason, count in others.items():
        labels = ("failed", "INVALID_ARGUMENT") if reason == "failed" else ("bad", reason)
        grown[key("images_total", NAME, "1", *labels)] = count
    return grown


def rows(count: int) -> Values:
    return {key("request_rows_count", NAME): 1, key("request_rows_sum", NAME): count}


def without_stages(grown: Values) -> Values:
    return {key: value for key, value in grown.items() if "stage" not in key[0]}


@pytest.fixture(scope="module")
def photos(clone: Path) -> list[dict[str, str]]:
    """A photo, and images that the model can't read: one per reason."""
    photo = (clone / "examples" / "rocket.jpg").read_bytes()
    contents = [
        photo,
        b"",
        b"no image",
        base64.b64encode(b"no image"),
        image_bombs.png(20_000, image_bombs.RGB, 1),
        photo[:5000],
    ]
    return [{"b64": base64.b64encode(content).decode()} for content in contents]


def test_images_are_counted_by_outcome_and_reason(server: ServerProcess, photos: list[dict[str, str]]) -> None:
    grown = growth(server, lambda: ask(server, signature_name="top_k", instances=photos))
    assert images(ok=1, empty=1, format=2, too_large=1, damaged=1) | rows(6) == without_stages(grown)


def test_an_image_that_fails_its_request_is_counted_with_its_reason(
    server: ServerProcess, photos: list[dict[str, str]]
) -> None:
    grown = growth(server, lambda: ask(server, instances=[photos[0], photos[4], photos[0]]))
    assert images(too_large=1, failed=2) | rows(3) == without_stages(grown)


def test_the_stages_of_a_sample_of_the_runs_are_timed(server: ServerProcess, photos: list[dict[str, str]]) -> None:
    grown = growth(server, lambda: [ask(server, instances=photos[:1]) for _ in range(4)])
    assert 4 == grown[key("request_rows_count", NAME)]
    for stage in ("decoding", "network"):
        assert 2 == grown[key("run_stage_seconds_count", NAME, "1", stage)]
        assert 0 < grown[key("run_stage_seconds_sum", NAME, "1", stage)] < 30


def test_calls_are_counted_by_token(server: ServerProcess, photos: list[dict[str, str]]) -> None:
    before = values(server)
    ask(server, instances=photos[:1])
    ask(server, token="unknown", instances=photos[:1])
    after = values(server)
    assert 2 == after[key("token_calls_total", "ci")] - before[key("token_calls_total", "ci")]  # and the page
    assert {"ci", "slow"} == {
        name for metric, [*labels] in after if metric == "bakery_token_calls_total" for name in labels
    }


def test_calls_beyond_a_limit_are_counted_by_limit(server: ServerProcess, photos: list[dict[str, str]]) -> None:
    def over_grpc() -> None:
        request = METHODS["Predict"].request()
        request.model_spec.name = NAME
        request.inputs["image"].dtype = 7
        request.inputs["image"].tensor_shape.dim.add(size=MAX_ROWS + 1)
        request.inputs["image"].string_val.extend([b""] * (MAX_ROWS + 1))
        with grpc.insecure_channel(server.target) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(METHODS["Predict"].path)(
                request.SerializeToString(), metadata=[("authorization", "Bearer ci")], timeout=30
            )

    def over_rest() -> None:
        assert 429 == ask(server, instances=photos[:1] * (MAX_ROWS + 1))
        ask(server, token="slow", instances=photos[:1])
        assert 429 == ask(server, token="slow", instances=photos[:1])

    assert {key("rejected_calls_total", "GRPC", "max_rows_per_request"): 1} == growth(server, over_grpc)
    grown = growth(server, over_rest)
    assert 1 == grown[key("rejected_calls_total", "REST", "max_rows_per_request")]
    assert 1 == grown[key("rejected_calls_total", "REST", "requests_per_second")]


def test_versions_and_limits_are_on_the_page(server: ServerProcess) -> None:
    page = values(server)
    assert 1 == page[key("model_version_available", NAME, "1")]
    assert 1000 == page[key("max_waiting_calls", "GRPC")] == page[key("max_waiting_calls", "REST")]
    assert 0 < page[key("memory_budget_bytes")]
