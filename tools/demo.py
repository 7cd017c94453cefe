"""The main workflow from end to end: bake, serve, call in three ways, stop. Run by `make demo`.

Arguments: the gRPC port and the REST port, 8500 and 8501 by default. If one of them is not free, the demo uses another.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

CLONE = Path(__file__).parent.parent
NAME = "efficientnet_lite0"
BASE_PATH = Path("saved_model") / NAME
BAKERY = (sys.executable, "-m", "savedmodel_bakery")
PHOTOS = ("examples/coffee.png", "examples/chelsea.png")
START_LIMIT_S = 120


def main() -> None:
    """Run the demo; exit with 0 if every step succeeds."""
    preferred = preferred_ports(sys.argv[1:])
    os.chdir(CLONE)
    if not any(path.name.isdecimal() for path in BASE_PATH.glob("*")):
        run("bake efficientnet-lite0")
    port, rest_api_port = map(free_port, preferred)
    serve = f"serve {BASE_PATH} --port {port} --rest-api-port {rest_api_port}"
    show(f"bakery {serve} &")
    with Path(BASE_PATH.parent / "server.log").open("w") as log:
        server = subprocess.Popen([*BAKERY, *serve.split()], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{rest_api_port}/v1/models/{NAME}"
        wait_for(url, server)
        for photo in PHOTOS:
            run(f"ask --format GRPC --port {port} --top-k 1 {photo}")
            run(f"ask --format REST --rest-api-port {rest_api_port} --top-k 1 {photo}")
            curl(url, photo)
    finally:
        server.send_signal(signal.SIGTERM)
        status = server.wait(60)
    show(f"kill %1    # the server stopped with exit status {status}")
    sys.exit(status)


def preferred_ports(arguments: Sequence[str]) -> tuple[int, int]:
    """Return the gRPC port and the REST port that the arguments state."""
    parser = argparse.ArgumentParser(description="Bake a model, serve it, call it, and stop the server.")
    parser.add_argument("port", nargs="?", type=int, default=8500, help="gRPC port; default: 8500")
    parser.add_argument("rest_api_port", nargs="?", type=int, default=8501, help="REST port; default: 8501")
    parsed = parser.parse_args(arguments)
    return parsed.port, parsed.rest_api_port


def run(arguments: str) -> None:
    """Show a `bakery` command and run it."""
    show(f"bakery {arguments}")
    subprocess.run([*BAKERY, *arguments.split()], check=True)


def curl(url: str, photo: str) -> None:
    """Show the curl command that classifies a photo, and run it unchanged."""
    command = (
        f"""(printf '{{"signature_name":"top_k","inputs":{{"image":["'; base64 < {photo} | tr -d '\\n'; """
        f"""printf '"]}}}}') | \\\n    curl --silent --show-error --fail --data-binary @- {url}:predict"""
    )
    show(command)
    subprocess.run(["/bin/sh", "-c", command], check=True)
    print(flush=True)


def show(command: str) -> None:
    """Print a command with a shell prompt."""
    print(f"$ {command}", flush=True)


def free_port(preferred: int) -> int:
    """Return the preferred port if it is free, otherwise any free port."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port")


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    """Return when the server answers at `url`; exit if the server ends first."""
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end:
        if server.poll() is not None:
            sys.exit(f"the server ended with status {server.returncode}; see saved_model/server.log")
        try:
            urllib.request.urlopen(url).close()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
        else:
            return
    sys.exit(f"the server did not answer within {START_LIMIT_S} s; see saved_model/server.log")


if __name__ == "__main__":
    main()
