"""Imports TensorFlow without the messages it writes to stderr before it reads any log level."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile

from savedmodel_bakery.interrupts import exit_on_interrupt


def import_tensorflow() -> None:
    """Import TensorFlow and discard what it writes to stderr, unless the import fails.

    The default log level is errors only; the environment variable TF_CPP_MIN_LOG_LEVEL overrides it.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            with exit_on_interrupt(stderr=stderr):
                tensorflow = importlib.import_module("tensorflow")
            tensorflow.get_logger().setLevel("ERROR")
        except BaseException:
            captured.seek(0)
            os.write(stderr, captured.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
