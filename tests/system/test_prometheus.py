"""A real Prometheus reads the metrics of a server and a worker, and runs every query of the dashboards and alerts."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from amqp_worker import WorkerProcess, exchange, make_message, predict_request
from attacked_server import METRICS_PATH
from rabbitmq import RabbitMQ
from server_process import ServerProcess, free_port
from waiting import wait_until

MODEL = "half_plus_two"
WITHOUT_DATA = {"Stages of a run", "Rejected calls", "Calls by token"}
"""Panels on what does not happen here: sampled runs, rejected calls and tokens."""

Query = Callable[[str], list[Any]]


@pytest.fixture(scope="module")
def measured(half_plus_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that publishes metrics."""
    folder = tmp_path_factory.mktemp("measured")
    config = folder / "monitoring.config"
    config.write_text(f'prometheus_config {{ enable: true path: "{METRICS_PATH}" }}')
    flags = (f"--model_name={MODEL}", f"--model_base_path={half_plus_two}", f"--monitoring_config_file={config}")
    with ServerProcess(*flags, log=folder / "server.log") as running:
        yield running


@pytest.fixture(scope="module")
def worker_port(measured: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port with the metrics of a worker that calls the server for messages, and has replied to one."""
    port = free_port()
    options = ("--server", measured.target, "--model-name", MODEL, "--metrics-port", str(port))
    with (
        RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as broker,
        WorkerProcess(broker.url(), *options, log=tmp_path_factory.mktemp("worker") / "log"),
    ):
        exchange(broker.url(), [make_message(predict_request([1]))])
        yield port


@pytest.fixture(scope="module")
def query(
    clone: Path, measured: ServerProcess, worker_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Query]:
    """Runs a query on a Prometheus with our configuration, which has read the metrics before and after some calls."""
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((clone / "deploy" / "prometheus" / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    ports = {"bakery": measured.rest_api_port, "bakery-workers": worker_port}
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [f"127.0.0.1:{ports[job['job_name']]}"]}]
    (folder / "alerts.yaml").write_text((clone / "deploy" / "prometheus" / "alerts.yaml").read_text())
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    url = f"http://127.0.0.1:{port}/api/v1/query"

    def run(expression: str) -> list[Any]:
        response = requests.get(url, {"query": expression}, timeout=10)
        assert response.ok, f"{expression}: {response.text}"
        return list(response.json()["data"]["result"])

    def is_read(least: int) -> bool:
        try:
            if not requests.get(f"http://127.0.0.1:{port}/-/ready", timeout=10).ok:
                return False
        except requests.ConnectionError:
            return False
        rows = run("bakery_request_rows_count")
        workers = run("count_over_time(bakery_amqp_consumers[1m])")
        return bool(rows and workers) and int(rows[0]["value"][1]) >= least and int(workers[0]["value"][1]) >= 2

    def predict(count: int) -> None:
        for _ in range(count):
            requests.post(
                f"{measured.url}/v1/models/{MODEL}:predict", json={"instances": [1]}, timeout=10
            ).raise_for_status()

    options = (f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}")
    command = ["prometheus", f"--config.file={folder / 'prometheus.yaml'}", *options]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for calls in (5, 10):  # a rate needs two samples
                predict(5)
                wait_until(lambda least=calls: is_read(least), timeout_s=30)
            yield run
        finally:
            process.terminate()
            process.wait(20)


def expressions(clone: Path) -> dict[str, str]:
    """Return the queries of all panels, by title, and of all alerts, by name; variables have values that fit all."""
    found = {}
    for path in sorted((clone / "deploy" / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                text = target["expr"].replace("$model", ".*").replace("$__rate_interval", "1m")
                found[f"{panel['title']} {target['refId']}"] = text
    for group in yaml.safe_load((clone / "deploy" / "prometheus" / "alerts.yaml").read_text())["groups"]:
        found |= {rule["alert"]: rule["expr"] for rule in group["rules"]}
    return found


def test_every_query_is_valid_and_panels_have_data(clone: Path, query: Query) -> None:
    results = {name: query(text) for name, text in expressions(clone).items()}
    assert len(results) > 20
    empty = {name.rpartition(" ")[0] for name, found in results.items() if name[-2] == " " and not found}
    assert WITHOUT_DATA == empty


def test_every_metric_of_the_queries_is_published(clone: Path, measured: ServerProcess, worker_port: int) -> None:
    pages = (measured.url + METRICS_PATH, f"http://127.0.0.1:{worker_port}/metrics")
    page = "".join(requests.get(url, timeout=10).text for url in pages)
    published = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    used = {name for text in expressions(clone).values() for name in re.findall(r"(?:bakery_|process_|:)[\w:]+", text)}
    assert len(used) > 15
    assert set() == {re.sub("_(bucket|sum|count)$", "", name) for name in used} - published - {
        ":tensorflow:serving:request"  # the counter request_count
    }


def test_no_alert_fires(query: Query) -> None:
    assert [] == query('ALERTS{alertstate="firing"}')
    assert {"bakery": "1", "bakery-workers": "1"} == {
        found["metric"]["job"]: found["value"][1] for found in query("up")
    }


@pytest.mark.parametrize(
    "arguments", ["check rules alerts.yaml", "check config prometheus.yaml", "test rules alerts_test.yaml"]
)
def test_promtool_accepts_the_files(clone: Path, arguments: str) -> None:
    outcome = subprocess.run(
        ["promtool", *arguments.split()],
        cwd=clone / "deploy" / "prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == outcome.returncode, outcome.stdout + outcome.stderr


def test_every_alert_has_a_test_and_a_line_in_the_page(clone: Path) -> None:
    folder = clone / "deploy" / "prometheus"
    [group] = yaml.safe_load((folder / "alerts.yaml").read_text())["groups"]
    alerts = [rule["alert"] for rule in group["rules"]]
    assert alerts == [test["name"] for test in yaml.safe_load((folder / "alerts_test.yaml").read_text())["tests"]]
    page = (clone / "docs" / "how-to" / "monitoring.md").read_text()
    assert alerts == re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE)


def test_the_queries_of_the_autoscalers_have_data(clone: Path, query: Query) -> None:
    """Those of the adapter, for the labels that this Prometheus has instead of those of a cluster."""
    rules = yaml.safe_load((clone / "deploy" / "kubernetes" / "prometheus-adapter.yaml").read_text())["rules"]
    for rule in rules:
        series = rule["seriesQuery"].partition("{")[0]
        assert query(series), series
        rendered = rule["metricsQuery"]
        for name, value in {"Series": series, "LabelMatchers": 'job="bakery"', "GroupBy": "instance"}.items():
            rendered = rendered.replace(f"<<.{name}>>", value)
        [found] = query(rendered)
        assert float(found["value"][1]) >= 0, rendered
