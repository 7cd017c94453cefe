"""A real RabbitMQ: on free loopback ports, with its own folder and its own epmd."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from server_process import free_port
from waiting import wait_until

# From Debian's package; the script in /usr/sbin would switch to the user rabbitmq.
SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
CONTROL = "/usr/lib/rabbitmq/bin/rabbitmqctl"
START_LIMIT_S = 180


class RabbitMQ:
    """A broker, from start to end.

    Args:
        folder: for its data, configuration and log; the broker can be stopped and started again in it.
        settings: further lines of rabbitmq.conf; `{tls_port}` is replaced by a free port.
        virtual_hosts: number of virtual hosts besides the default one, for `use_next_virtual_host`.
    """

    def __init__(self, folder: Path, settings: str = "", *, virtual_hosts: int = 0) -> None:
        self.folder = folder
        self._virtual_host = ""
        names = [f"test{number}" for number in range(virtual_hosts)]
        self._unused = iter(names)
        self.port, self.tls_port, self._distribution_port, self._epmd_port = (free_port() for _ in range(4))
        folder.mkdir(exist_ok=True)
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{self.port}\n"
            "loopback_users.guest = true\n"
            "vm_memory_high_watermark.absolute = 1GB\n"
            "disk_free_limit.absolute = 50MB\n"
            "log.console = false\nlog.file.level = warning\n" + settings.format(tls_port=self.tls_port)
        )
        if names:
            (folder / "definitions.json").write_text(json.dumps(_definitions(names)))
            with (folder / "rabbitmq.conf").open("a") as configuration:
                configuration.write(f"\nload_definitions = {folder / 'definitions.json'}\n")
        (folder / "enabled_plugins").write_text("[].\n")
        (folder / "env.conf").write_text("")
        cookie = folder / ".erlang.cookie"
        cookie.write_text("loopback")
        cookie.chmod(0o400)
        self._environment = self._make_environment()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        return int((self.folder / "pid").read_text())

    def url(self, user: str = "guest", password: str = "guest", options: str = "") -> str:
        """Return the URL of the broker."""
        return f"amqp://{user}:{password}@127.0.0.1:{self.port}/{self._virtual_host}{options}"

    def use_next_virtual_host(self) -> None:
        """Let `url` return that of a virtual host without queues."""
        self._virtual_host = next(self._unused)

    def start(self) -> None:
        """Start epmd and the broker, and return when it accepts connections."""
        epmd = ["epmd", "-address", "127.0.0.1", "-port", str(self._epmd_port)]
        with (self.folder / "output").open("wb") as output:
            for command in (epmd, [SERVER]):
                process = subprocess.Popen(
                    command, env=self._environment, cwd=self.folder, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                )  # fmt: skip
                self._processes.append(process)
        try:
            wait_until(
                lambda: self._is_ready() or self._processes[1].poll() is not None,
                timeout_s=START_LIMIT_S,
                interval_s=0.05,
                describe=lambda: "RabbitMQ took too long",
            )
            assert self._processes[1].poll() is None
        except AssertionError as error:
            self.stop()
            raise AssertionError(f"RabbitMQ did not start:\n{(self.folder / 'output').read_text()}") from error

    def stop(self) -> None:
        """Stop the broker and epmd, and wait for both."""
        epmd, server = self._processes
        if server.poll() is None:
            os.kill(self.pid, signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
        epmd.terminate()
        epmd.wait()
        self._processes = []

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl and return its output."""
        command = [CONTROL, "--quiet", "--node", self._environment["RABBITMQ_NODENAME"], *arguments]
        return subprocess.run(
            command, env=self._environment, cwd=self.folder, check=True, capture_output=True, text=True, timeout=150
        ).stdout

    def add_user(self, name: str, password: str, configure: str, write: str, read: str) -> None:
        """Add a user with these permissions (rabbitmq.com/docs/access-control)."""
        self.control("add_user", name, password)
        self.control("set_permissions", name, configure, write, read)

    def _is_ready(self) -> bool:
        """Return whether the broker responds to a protocol header; it opens its listener last."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(2)
                connection.sendall(b"AMQP\0\0\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False

    def _make_environment(self) -> dict[str, str]:
        folder = self.folder
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")}
        return inherited | {
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "env.conf"),  # instead of /etc/rabbitmq/rabbitmq-env.conf
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONFIG_FILES": str(folder / "conf.d"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(folder / "feature_flags"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"
            ),
        }

    def __enter__(self) -> RabbitMQ:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _definitions(virtual_hosts: Sequence[str]) -> dict[str, object]:
    """Return the user guest and its virtual hosts, as rabbitmq.com/docs/definitions describes them."""
    salt = b"salt"
    names = ["/", *virtual_hosts]
    everything = {"user": "guest", "configure": ".*", "write": ".*", "read": ".*"}
    return {
        "users": [
            {
                "name": "guest",
                "password_hash": base64.b64encode(salt + hashlib.sha256(salt + b"guest").digest()).decode(),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": ["administrator"],
            }
        ],
        "vhosts": [{"name": name} for name in names],
        "permissions": [{**everything, "vhost": name} for name in names],
    }
