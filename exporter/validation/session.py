"""A process of its own that loads a SavedModel as tensorflow_model_server does, asks it and writes down its answers.

python -m savedmodel_bakery.exporter.validation.session SAVED_MODEL ASKED ANSWERED

Both files are TFRecords of PredictionLog (tensorflow_serving/apis/prediction_log.proto), as warm-up files are: first
with requests alone, then with the responses too.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_modules: dict[str, Any] = sys.modules
_modules.update(keras=None, tf_keras=None)  # they can't be imported then, as TensorFlow would, which takes a second
import tensorflow as tf  # noqa: E402

from savedmodel_bakery.wire import schema  # noqa: E402
from savedmodel_bakery.wire.tensors import decode_array, encode_tensor  # noqa: E402


class Session:
    """A SavedModel in a TensorFlow 1 session."""

    def __init__(self, saved_model: str) -> None:
        graph = tf.Graph()
        with graph.as_default():
            self._session = tf.compat.v1.Session(graph=graph)
            loaded = tf.compat.v1.saved_model.load(self._session, [tf.saved_model.SERVING], saved_model)
        self._signatures = loaded.signature_def

    def answer(self, log: Any) -> None:
        """Add the response to a PredictionLog that holds a request."""
        if log.HasField("classify_log"):
            self._classify(log.classify_log)
        else:
            self._predict(log.predict_log)

    def _predict(self, log: Any) -> None:
        asked = log.request
        outputs = self._run(
            asked.model_spec.signature_name,
            {alias: decode_array(asked.inputs[alias]) for alias in asked.inputs},
            list(asked.output_filter),
        )
        log.response.model_spec.CopyFrom(asked.model_spec)
        for alias, array in outputs.items():
            log.response.outputs[alias].CopyFrom(encode_tensor(array))

    def _classify(self, log: Any) -> None:
        examples = [example.SerializeToString() for example in log.request.input.example_list.examples]
        outputs = self._run(log.request.model_spec.signature_name, {"inputs": np.array(examples, object)}, [])
        log.response.model_spec.CopyFrom(log.request.model_spec)
        for labels, scores in zip(outputs["classes"], outputs["scores"], strict=True):
            classes = log.response.result.classifications.add().classes
            for label, score in zip(labels, scores, strict=True):
                classes.add(label=label, score=score)

    def _run(self, name: str, inputs: dict[str, np.ndarray], wanted: list[str]) -> dict[str, np.ndarray]:
        signature = self._signatures[name]
        fetches = {alias: signature.outputs[alias].name for alias in wanted or signature.outputs}
        feeds = {signature.inputs[alias].name: array for alias, array in inputs.items()}
        found: dict[str, np.ndarray] = self._session.run(fetches, feeds)
        return found


def main() -> None:
    """Answer a file of requests; a failure is one line on stderr."""
    saved_model, asked, answered = sys.argv[1:]
    try:
        session = Session(saved_model)
        with tf.io.TFRecordWriter(answered) as writer:
            for record in tf.data.TFRecordDataset(asked).as_numpy_iterator():
                log = schema.PredictionLog.FromString(record)
                session.answer(log)
                writer.write(log.SerializeToString())
    except (tf.errors.OpError, KeyError, OSError, ValueError) as error:
        raise SystemExit(" ".join(str(error).split())) from error


if __name__ == "__main__":
    main()
