"""Ends a run of a TensorFlow Session from outside. A Session has no call for that, but an operation that fails ends it.

Beside what a run fetches, it dequeues a flag from a queue; so it lasts until there is one. When all fetches are there,
the run itself enqueues true. Another run may enqueue false before: then an assertion fails, and TensorFlow starts no
further iteration of a loop, call of a function or operation that waits. An operation that runs ends first, and so do
those that follow it outside a loop: a network without loops runs to its end.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.runtimes.direct_session import IN_CALLERS_THREAD, DirectSession

tf1 = tf.compat.v1

# Runs beyond this number at the same time can't be ended from outside: as many as both ports run by default.
_QUEUES = 8 * (os.cpu_count() or 1)
# Errors number the inputs of a run in the order of their names; this one must be the last.
_SCOPE = "zzz_interruption"


class Interrupter:
    """Runs a graph, to which operations are added, so that the end of a request ends its run."""

    def __init__(self, session: DirectSession, graph: tf.Graph) -> None:
        self._session = session
        self._graph = graph
        self._lock = threading.Lock()
        self._watches: dict[frozenset[str], Any] = {}
        with graph.as_default(), tf1.name_scope(_SCOPE):
            queues = [
                tf.raw_ops.FIFOQueueV2(component_types=[tf.bool], shapes=[[]], shared_name=f"interruption_{number}")
                for number in range(_QUEUES)
            ]
            # The session keeps the queues under names, so that a run needs one operation to get its queue.
            kept = [tf.raw_ops.GetSessionHandle(value=queue) for queue in queues]
            name, flag = tf1.placeholder(tf.string, []), tf1.placeholder(tf.bool, [])
            self._queue = tf.raw_ops.GetSessionTensor(handle=name, dtype=tf.resource)
            size = tf.raw_ops.QueueSizeV2(handle=self._queue)
            (dequeued,) = tf.raw_ops.QueueDequeueV2(handle=self._queue, component_types=[tf.bool])
            with tf.control_dependencies([tf.raw_ops.QueueEnqueueV2(handle=self._queue, components=[flag])]):
                enqueued = tf.identity(flag)
        self._name, self._flag, self._size, self._dequeued, self._enqueued = map(
            session.handle, (name, flag, size, dequeued, enqueued)
        )
        session.extend()
        names = session.run({}, [session.handle(tensor) for tensor in kept], IN_CALLERS_THREAD)
        self._idle = [np.array(name, object) for name in names]
        # TensorFlow prepares operations when they first run, which takes long in a large graph: the thread that tells
        # of a cancellation, which others need too, can't wait for that.
        self._interrupt(self._idle[0])
        self._empty(self._idle[0])

    def run(
        self,
        feeds: Mapping[Any, np.ndarray],
        fetches: Sequence[Any],
        options: Any,
        context: RequestContext,
        metadata: Any = None,
    ) -> list[Any]:
        """Run the graph once; see `DirectSession.run`. A cancelled request ends with an error."""
        handles = [self._session.handle(tensor) for tensor in fetches]
        try:
            queue = self._idle.pop()
        except IndexError:
            return self._session.run(feeds, handles, options, metadata)
        is_clean = False
        try:
            with context.on_cancel(partial(self._interrupt, queue)):
                watch = self._watch(fetches)
                outputs = self._session.run({**feeds, self._name: queue}, [*handles, watch], options, metadata)
            is_clean = not context.is_cancelled
            return outputs[:-1]
        except tf.errors.CancelledError:
            context.check()
        finally:
            if not is_clean:
                self._empty(queue)
            self._idle.append(queue)
        # An operation in a function has failed, which also ended the wait for the flag; TensorFlow reported the error
        # of that wait only. So run again without it, for the error. Not in the handler above: the error to report is
        # the first in its chain.
        remaining_s = context.remaining_s()
        if remaining_s is not None:
            options = copy.deepcopy(options)
            options.timeout_in_ms = max(1, round(remaining_s * 1000))
        return self._session.run(feeds, handles, options, metadata)

    def _interrupt(self, queue: np.ndarray) -> None:
        feeds = {self._name: queue, self._flag: np.array(False)}
        self._session.run(feeds, [self._enqueued], IN_CALLERS_THREAD)

    def _empty(self, queue: np.ndarray) -> None:
        """Remove the flags that a run left in its queue."""
        (count,) = self._session.run({self._name: queue}, [self._size], IN_CALLERS_THREAD)
        for _ in range(count):
            self._session.run({self._name: queue}, [self._dequeued], IN_CALLERS_THREAD)

    def _watch(self, fetches: Sequence[Any]) -> Any:
        """Return the handle of a tensor that is there when all fetches are, unless `_interrupt` makes it fail."""
        key = frozenset(tensor.name for tensor in fetches)  # a caller may choose any order
        if key not in self._watches:
            with self._lock, self._graph.as_default(), tf1.name_scope(_SCOPE):
                # What waits for the call of a function doesn't wait for its result; what reads the result does. But
                # TensorFlow only inlines a call with side effects, which makes it faster, if something waits for it.
                calls = [tensor.op for tensor in fetches]
                with tf.control_dependencies([*calls, *map(tf.identity, fetches)]):
                    end = tf.raw_ops.QueueEnqueueV2(handle=self._queue, components=[tf.constant(True)])
                (go_on,) = tf.raw_ops.QueueDequeueV2(handle=self._queue, component_types=[tf.bool])
                check = tf.raw_ops.Assert(condition=go_on, data=["the request was cancelled"])
                with tf.control_dependencies([end, check]):
                    watch = tf.identity(go_on)
                self._session.extend()
            self._watches[key] = self._session.handle(watch)
        return self._watches[key]
