"""A worker that calls a model server needs the extra `amqp` alone."""

from __future__ import annotations

import subprocess
import sys

SERVE_ONLY = (
    "flatbuffers",
    "grpc_health",
    "grpc_reflection",
    "httptools",
    "keras",
    "multipart",
    "tensorflow",
    "uvloop",
)

PROGRAM = """
import sys
for name in {missing!r}:
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
from savedmodel_bakery.serving.amqp import backends, consumer, handlers, queues, server
from savedmodel_bakery.serving.commands import amqp
"""


def test_the_worker_imports_nothing_of_the_extra_serve() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM.format(missing=SERVE_ONLY)], check=True, timeout=60)
