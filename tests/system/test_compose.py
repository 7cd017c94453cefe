"""compose.yaml is valid, publishes ports on the loopback address only, and mounts files that exist."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import blocks, commands


def compose_config(clone: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["docker-compose", "--file", str(clone / "compose.yaml"), "config"]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def services(clone: Path) -> dict[str, Any]:
    config = compose_config(clone, AMQP_PASSWORD="secret")
    assert 0 == config.returncode, config.stderr
    return dict(yaml.safe_load(config.stdout)["services"])


def test_all_parts_are_there(services: dict[str, Any]) -> None:
    assert {"server", "rabbitmq", "worker", "prometheus", "grafana"} == services.keys()


def test_a_password_is_required(clone: Path) -> None:
    config = compose_config(clone, AMQP_PASSWORD="")
    assert 0 != config.returncode
    assert "set it to the password of the broker" in config.stderr


def test_the_worker_has_the_password_of_the_broker(services: dict[str, Any]) -> None:
    broker, worker = (services[name]["environment"] for name in ("rabbitmq", "worker"))
    user, password = broker["RABBITMQ_DEFAULT_USER"], broker["RABBITMQ_DEFAULT_PASS"]
    assert f"amqp://{user}:{password}@rabbitmq/" == worker["BAKERY_AMQP_URL"]


def test_a_queue_outlives_the_containers(clone: Path, services: dict[str, Any], tmp_path: Path) -> None:
    """The broker's folder in its volume has the name of its host, and knows the first password only."""
    assert "rabbitmq" == services["rabbitmq"]["hostname"]
    assert "/var/lib/rabbitmq" in [mount.split(":")[1] for mount in services["rabbitmq"]["volumes"]]
    page = (clone / "docs" / "how-to" / "docker.md").read_text()
    shown = [command for block in blocks(page) if block.language == "console" for command, _ in commands(block)]
    make_password, start = shown[shown.index("docker compose up --detach") - 1 :][:2]
    assert "docker compose up --detach" == start
    subprocess.run(make_password, shell=True, cwd=tmp_path, check=True)
    shutil.copy(clone / "compose.yaml", tmp_path)
    assert 0o600 == (tmp_path / ".env").stat().st_mode & 0o777
    made = (tmp_path / ".env").read_text().strip().partition("=")[2]
    used = yaml.safe_load(compose_config(tmp_path).stdout)["services"]["rabbitmq"]["environment"]
    assert made == used["RABBITMQ_DEFAULT_PASS"]
    assert len(made) == 32


def test_ports_are_published_on_the_loopback_address_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) >= 5
    assert [] == [port for port in ports if not port.startswith("127.0.0.1:")]


def test_mounted_files_exist_and_are_read_only(clone: Path, services: dict[str, Any]) -> None:
    mounts = [mount.split(":") for service in services.values() for mount in service.get("volumes", [])]
    of_clone = [(Path(source), mode) for source, _, mode in mounts if source.startswith("/")]
    assert len(of_clone) >= 4
    assert [] == [str(path.relative_to(clone)) for path, mode in of_clone if not path.exists() or mode != "ro"]


def test_prometheus_reads_the_metrics_of_the_server(services: dict[str, Any]) -> None:
    configuration = mounted(services["prometheus"], "/etc/prometheus") / "prometheus.yaml"
    assert ["--config.file=/etc/prometheus/prometheus.yaml"] == services["prometheus"]["command"]
    jobs = {job["job_name"]: job for job in yaml.safe_load(configuration.read_text())["scrape_configs"]}
    assert [{"targets": ["server:8501"]}] == jobs["bakery"]["static_configs"]
    enabled = mounted(services["server"], "/etc/bakery/monitoring.config")
    assert "prometheus_config { enable: true }" == enabled.read_text().strip()
    assert ["--monitoring_config_file=/etc/bakery/monitoring.config"] == services["server"]["command"]


def test_prometheus_reads_the_metrics_of_the_worker(services: dict[str, Any]) -> None:
    configuration = mounted(services["prometheus"], "/etc/prometheus") / "prometheus.yaml"
    jobs = {job["job_name"]: job for job in yaml.safe_load(configuration.read_text())["scrape_configs"]}
    assert [{"targets": ["worker:9464"]}] == jobs["bakery-workers"]["static_configs"]
    assert "metrics_path" not in jobs["bakery-workers"]
    command = services["worker"]["command"]
    assert ["--metrics-port", "9464", "--metrics-address", "0.0.0.0"] == command[command.index("--metrics-port") :]
    assert "ports" not in services["worker"]


def test_grafana_finds_prometheus_and_the_dashboards(clone: Path, services: dict[str, Any]) -> None:
    provisioning = mounted(services["grafana"], "/etc/grafana/provisioning")
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert "http://prometheus:9090" == source["url"]
    [provider] = yaml.safe_load((provisioning / "dashboards" / "bakery.yaml").read_text())["providers"]
    assert clone / "deploy" / "grafana" == mounted(services["grafana"], provider["options"]["path"])


def mounted(service: dict[str, Any], target: str) -> Path:
    """Return what a service mounts at a path."""
    [source] = [source for source, path, *_ in (one.split(":") for one in service["volumes"]) if path == target]
    return Path(source)


def test_our_containers_are_restricted(services: dict[str, Any]) -> None:
    for name in ("server", "worker"):
        assert services[name]["read_only"]
        assert ["ALL"] == services[name]["cap_drop"]
        assert "35s" == services[name]["stop_grace_period"]
