"""TensorFlow's batch scheduler (the operation BatchFunction), which groups rows into batches.

The scheduler only sees a number for each row, not its values. So rows of any shape and type can share a batch, and
nothing is copied before the members of the batch are known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from savedmodel_bakery.serving.options.config_files import BatchingParameters
from savedmodel_bakery.serving.runtimes.direct_session import DirectSession
from savedmodel_bakery.wire.status import Code, StatusError

tf1 = tf.compat.v1


class BatchScheduler:
    """Queues by name, which share threads and parameters.

    `run_batch` is called with the rows of each batch (int64, numbered as submitted), at whose end repeated rows are
    padding. It must not raise.
    """

    def __init__(self, parameters: BatchingParameters, run_batch: Callable[[np.ndarray], None]) -> None:
        self._parameters = parameters
        self._lock = threading.Lock()
        self._graph = tf.Graph()
        self._queues: dict[str, object] = {}

        def process(rows: np.ndarray) -> np.ndarray:
            run_batch(rows)
            return rows

        with self._graph.as_default():
            rows = tf1.placeholder(tf.int64, [None])
            self._rows, self._rows_handle = rows, DirectSession.handle(rows)

            @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False)
            def batch(rows: tf.Tensor) -> tf.Tensor:
                return tf.ensure_shape(tf.numpy_function(process, [rows], tf.int64), [None])

            self._batch = batch.get_concrete_function()
            self._batch.add_to_graph(self._graph)
        # Each batch blocks one thread of this session while the model runs on other threads; one more queues rows.
        config = tf1.ConfigProto()
        config.session_inter_op_thread_pool.add(num_threads=parameters.num_batch_threads + 1)
        self._session = DirectSession(self._graph, config)

    def submit(self, queue: str, rows: np.ndarray) -> None:
        """Put `rows` (int64, unique numbers) into batches; return when all those batches have run.

        Only rows of the same queue share a batch.

        Raises:
            StatusError: there are too many rows, or the queue is full.
        """
        handle = self._queues.get(queue) or self._open(queue)
        try:
            self._session.run({self._rows_handle: rows}, [handle])
        except tf.errors.OpError as error:
            raise StatusError(Code(error.error_code), error.message.partition("\n\t [[{{node")[0]) from error

    def close(self) -> None:
        """Stop the threads; no submit may be waiting."""
        self._session.close()

    def _open(self, queue: str) -> object:
        parameters = self._parameters
        sizes = list(parameters.allowed_batch_sizes)
        if parameters.max_execution_batch_size < parameters.max_batch_size and not sizes:
            # The operation has no such parameter; it splits at the largest allowed size.
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
                self._session.extend()
                self._queues[queue] = DirectSession.handle(output)
            return self._queues[queue]
