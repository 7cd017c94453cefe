"""TensorFlow's own batch scheduler (the operation BatchFunction), told of rows and handing out batches.

The scheduler sees a number for each row, not the row itself: so what is joined may be of any shape and type, and
nothing is copied before it is known what it is joined with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import ThreadPoolOptionProto

from savedmodel_bakery.serving.options.batching import BatchingParameters
from savedmodel_bakery.wire.status import Code, StatusError

tf1 = tf.compat.v1

RunBatch = Callable[[np.ndarray], None]
"""Takes a batch: int64 [rows], as they were submitted; a row that comes again is padding. Must not raise."""


class BatchScheduler:
    """Queues by name, which share threads and parameters."""

    def __init__(self, parameters: BatchingParameters, run_batch: RunBatch) -> None:
        self._parameters = parameters
        self._lock = threading.Lock()
        self._graph = tf.Graph()
        self._queues: dict[str, object] = {}

        def take(rows: np.ndarray) -> np.ndarray:
            run_batch(rows)
            return rows

        with self._graph.as_default():
            rows = tf1.placeholder(tf.int64, [None])
            self._rows, self._rows_port = rows, rows._as_tf_output()

            @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False)
            def batch(rows: tf.Tensor) -> tf.Tensor:
                return tf.ensure_shape(tf.numpy_function(take, [rows], tf.int64), [None])

            self._batch = batch.get_concrete_function()
            self._batch.add_to_graph(self._graph)
        # The session's own threads: each batch blocks one while the model runs on others, and one is left to queue.
        pool = ThreadPoolOptionProto(num_threads=parameters.num_batch_threads + 1)
        self._session = tf1.Session(graph=self._graph, config=tf1.ConfigProto(session_inter_op_thread_pool=[pool]))

    def submit(self, queue: str, rows: np.ndarray) -> None:
        """Return when each of `rows`, int64 [rows], has been in a batch.

        Args:
            queue: only rows of the same queue meet in a batch.
            rows: numbers that tell rows apart.

        Raises:
            StatusError: too many rows, or the queue is full.
        """
        port = self._queues.get(queue) or self._open(queue)
        try:
            self._session._call_tf_sessionrun(None, {self._rows_port: rows}, [port], [], None)
        except tf.errors.OpError as error:
            raise StatusError(Code(error.error_code), error.message.partition("\n\t [[{{node")[0]) from error

    def close(self) -> None:
        """End the threads; nothing may wait."""
        self._session.close()

    def _open(self, queue: str) -> object:
        parameters = self._parameters
        sizes = list(parameters.allowed_batch_sizes)
        if parameters.max_execution_batch_size < parameters.max_batch_size and not sizes:
            # The operation knows the size of a piece only as the largest that is allowed.
            sizes = list(range(1, parameters.max_execution_batch_size + 1))
        with self._lock:
            if queue not in self._queues:
                with self._graph.as_default():
                    (output,) = tf.raw_ops.BatchFunction(
                        in_tensors=[self._rows],
                        captured_tensors=[],
                        f=self._batch,
                        Tout=[tf.int64],
                        num_batch_threads=parameters.num_batch_threads,
                        max_batch_size=parameters.max_batch_size,
                        batch_timeout_micros=parameters.batch_timeout_micros,
                        max_enqueued_batches=parameters.max_enqueued_batches,
                        allowed_batch_sizes=sizes,
                        enable_large_batch_splitting=parameters.enable_large_batch_splitting,
                        shared_name="batcher",
                        batching_queue=queue,
                    )
                self._session._extend_graph()
                self._queues[queue] = output._as_tf_output()
            return self._queues[queue]
