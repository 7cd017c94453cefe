"""A program that loads SavedModels as tensorflow_model_server does, and runs requests on them.

python -m savedmodel_bakery.exporter.validation.session_process

Each line of stdin is a command, a JSON array: the SavedModel's folder, and two files of PredictionLogs
(tensorflow_serving/apis/prediction_log.proto) as TFRecords, as warm-up files are: the requests to read, and the same
requests with their responses to write. The answer is one line of stdout: a JSON string, empty or the reason why it
failed.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Any

import numpy as np

from savedmodel_bakery.tensorflow_import import KERAS, import_tensorflow
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.tensors import as_array, decode_array, encode_tensor

tf = import_tensorflow(without=KERAS)


class Session:
    """A SavedModel in a TensorFlow 1 session."""

    def __init__(self, saved_model: str) -> None:
        graph = tf.Graph()
        config = tf.compat.v1.ConfigProto()
        rewrites = config.graph_options.rewrite_options
        # The optimisers in MLIR, and a second pass of the others, take two thirds of each signature's first run.
        rewrites.disable_tfg_optimizer = True
        rewrites.meta_optimizer_iterations = rewrites.ONE
        with graph.as_default():
            self._session = tf.compat.v1.Session(graph=graph, config=config)
            loaded = tf.compat.v1.saved_model.load(self._session, [tf.saved_model.SERVING], saved_model)
        self._signatures = loaded.signature_def

    def add_response(self, log: Any) -> None:
        """Run the request of a PredictionLog, and add its response."""
        if log.HasField("classify_log"):
            self._classify(log.classify_log)
        elif log.HasField("regress_log"):
            self._regress(log.regress_log)
        else:
            self._predict(log.predict_log)

    def _predict(self, log: Any) -> None:
        request = log.request
        outputs = self._run(
            request.model_spec.signature_name,
            {alias: decode_array(request.inputs[alias]) for alias in request.inputs},
            list(request.output_filter),
        )
        log.response.model_spec.CopyFrom(request.model_spec)
        for alias, array in outputs.items():
            log.response.outputs[alias].CopyFrom(encode_tensor(array))

    def _classify(self, log: Any) -> None:
        outputs = self._run_examples(log)
        for labels, scores in zip(outputs["classes"], outputs["scores"], strict=True):
            classes = log.response.result.classifications.add().classes
            for label, score in zip(labels, scores, strict=True):
                classes.add(label=label, score=score)

    def _regress(self, log: Any) -> None:
        for value in self._run_examples(log)["outputs"]:
            log.response.result.regressions.add(value=value)

    def _run_examples(self, log: Any) -> dict[str, np.ndarray]:
        examples = [example.SerializeToString() for example in log.request.input.example_list.examples]
        log.response.model_spec.CopyFrom(log.request.model_spec)
        return self._run(log.request.model_spec.signature_name, {"inputs": np.array(examples, object)}, [])

    def _run(self, name: str, inputs: dict[str, np.ndarray], output_filter: list[str]) -> dict[str, np.ndarray]:
        signature = self._signatures[name]
        # All outputs, because each selection of outputs would be prepared separately.
        fetches = {alias: signature.outputs[alias].name for alias in signature.outputs}
        feeds = {signature.inputs[alias].name: array for alias, array in inputs.items()}
        outputs = self._session.run(fetches, feeds)
        return {alias: as_array(outputs[alias]) for alias in output_filter or fetches}


def main() -> None:
    """Run the commands on stdin until it ends."""
    # The network may print to stdout.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        load = functools.lru_cache(maxsize=1)(Session)
        for command in sys.stdin:
            saved_model, requests, responses = json.loads(command)
            try:
                _run_file(load(saved_model), requests, responses)
                reason = ""
            except (tf.errors.OpError, KeyError, OSError, ValueError) as error:
                reason = " ".join(str(error).split())
            print(json.dumps(reason), file=answers, flush=True)


def _run_file(session: Session, requests: str, responses: str) -> None:
    with tf.io.TFRecordWriter(responses) as writer:
        for record in tf.data.TFRecordDataset(requests).as_numpy_iterator():
            log = schema.PredictionLog.FromString(record)
            session.add_response(log)
            writer.write(log.SerializeToString())


if __name__ == "__main__":
    main()
