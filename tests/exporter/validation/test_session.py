"""The process that runs a SavedModel as the model server does: networks and faults that get in its way."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.validation.session import SessionProcess, decode_outputs, predict_request

REQUEST = predict_request("serving_default", {"x": np.float32([1, 2])})


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel that doubles x, and prints to stdout."""

    class Noisy(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")], autograph=False)
        def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            tf.print('"noise"', output_stream=sys.stdout)
            return {"y": x * 2}

    module, path = Noisy(), tmp_path_factory.mktemp("noisy") / "1"
    tf.saved_model.save(module, str(path), signatures=module.serve)
    return path


def test_what_a_network_prints_is_not_an_answer(noisy: Path) -> None:
    with SessionProcess() as session:
        for _ in range(2):
            (log,) = session.run(noisy, [REQUEST])
            assert [2, 4] == decode_outputs(log)["y"].tolist()


def test_responses_that_nobody_waited_for_are_dropped(noisy: Path) -> None:
    """As after a bake that fails while it compares photos: the next one may use the same process."""
    with SessionProcess() as session:
        session.start(noisy.parent / "missing", [])
        (log,) = session.run(noisy, [REQUEST])
        assert [2, 4] == decode_outputs(log)["y"].tolist()


def test_a_process_that_dies_is_an_error_and_leaves_no_files(
    noisy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with SessionProcess() as session:
        session._process.kill()
        for _ in range(2):  # while it ends, and when it has ended
            with pytest.raises(VerificationError, match="no reason given"):
                session.run(noisy, [REQUEST])
        assert [] != list(tmp_path.iterdir())
    assert [] == list(tmp_path.iterdir())
