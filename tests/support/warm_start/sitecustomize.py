"""Python imports this module when it starts, because the tests put this folder on PYTHONPATH."""

import os

if os.environ.get("BAKERY_FORKSERVER"):
    import warm_start

    warm_start.take_over()
