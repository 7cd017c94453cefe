"""tensorflow.ProfilerService: a trace of what the process does, for TensorBoard, as TensorFlow's own service takes it.

`tf.profiler.experimental.client.trace` is its client.
"""

from __future__ import annotations

import re
import tempfile
import threading
from pathlib import Path
from typing import Any

from tensorflow.python.profiler.internal import _pywrap_profiler

from savedmodel_bakery.serving.grpc.handlers import Call
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.schema import Method
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_SERVICE = "/tensorflow.ProfilerService/"
_NAME = re.compile(r"[^/\0]*")


class Profiler:
    """The service; one trace at a time, as TensorFlow has one tracer a process."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._ended = threading.Event()

    def calls(self) -> dict[Method, Call]:
        """What is served; Monitor isn't, as by TensorFlow's own."""
        return {
            Method(_SERVICE + "Profile", schema.ProfileRequest, schema.ProfileResponse): self.profile,
            Method(_SERVICE + "Terminate", schema.TerminateRequest, schema.TerminateResponse): self.terminate,
        }

    def profile(self, request: Any, timeout_s: float | None) -> Any:
        """Trace for `duration_ms`, and write REPOSITORY_ROOT/SESSION_ID/HOST_NAME.xplane.pb where a root is given."""
        for name in (request.session_id, request.host_name):
            if not _NAME.fullmatch(name) or name in (".", ".."):
                raise invalid_argument(f"session_id and host_name are names of a folder and a file; {name!r} is none")
        if "\0" in request.repository_root:
            raise invalid_argument(f"repository_root is the path of a folder; {request.repository_root!r} is none")
        if not self._busy.acquire(blocking=False):
            raise StatusError(Code.UNAVAILABLE, "Another profiler session active.")
        try:
            trace = self._trace(
                min(request.duration_ms / 1000, threading.TIMEOUT_MAX, timeout_s or threading.TIMEOUT_MAX)
            )
        finally:
            self._busy.release()
        if request.repository_root:
            _write(Path(request.repository_root, request.session_id), f"{request.host_name}.xplane.pb", trace)
        space = schema.XSpace.FromString(trace)
        is_empty = not any(line.events for plane in space.planes for line in plane.lines)
        return schema.ProfileResponse(empty_trace=is_empty, xspace=trace if request.emit_xspace else b"")

    def terminate(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002 - every call takes both
        """End a trace that is running."""
        self._ended.set()
        return schema.TerminateResponse()

    def _trace(self, duration_s: float) -> bytes:
        """A serialized XSpace, which the tracer hands over as a file only.

        Raises:
            StatusError: UNAVAILABLE where it hands over none.
        """
        self._ended.clear()
        with tempfile.TemporaryDirectory() as folder:
            session = _pywrap_profiler.ProfilerSession()
            session.start(folder, {})
            self._ended.wait(duration_s)
            session.export_to_tb()
            written = next(Path(folder).rglob("*.xplane.pb"), None)
            if written is None:
                raise StatusError(Code.UNAVAILABLE, "The tracer has written no trace.")
            return written.read_bytes()


def _write(folder: Path, name: str, content: bytes) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    except OSError as error:
        raise StatusError(Code.FAILED_PRECONDITION, f"{folder / name}; {error.strerror}") from error
