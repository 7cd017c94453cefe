"""Import TensorFlow without the lines it writes to stderr before any log level counts."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile


def import_tensorflow() -> None:
    """Import TensorFlow once, quietly; what it wrote is shown only where the import fails.

    The log level that is set in the environment counts; errors only is the default.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as spool:
        os.dup2(spool.fileno(), 2)
        try:
            tensorflow = importlib.import_module("tensorflow")
            tensorflow.get_logger().setLevel("ERROR")
        except BaseException:
            spool.seek(0)
            os.write(stderr, spool.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
