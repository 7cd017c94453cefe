"""Callers that call a server all the time while something happens to it, and what they see meanwhile."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping

import grpc
import grpc_calls
import numpy as np
import requests
from server_process import ServerProcess
from tensorflow_serving.apis import prediction_service_pb2_grpc
from waiting import wait_until


class SteadyCallers:
    """Make calls all the time until the end of the `with` block; each kind of call has a thread.

    Args:
        calls: a function per kind, which makes a call and returns whether the answer is right.
        interval_s: pause between two calls of a kind.

    Attributes:
        answered: number of right answers by kind of call.
        failures: the calls that failed or got a wrong answer: kind and reason.
        longest_gap_s: the longest time without a right answer, by kind.
    """

    def __init__(self, calls: Mapping[str, Callable[[], bool]], *, interval_s: float = 0.1) -> None:
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._ended_calls: Counter[str] = Counter()
        self._slowest_s: dict[str, float] = {}
        self.answered: Counter[str] = Counter()
        self.failures: list[str] = []
        self.longest_gap_s: defaultdict[str, float] = defaultdict(float)
        self._threads = [threading.Thread(target=self._run, args=kind, name=kind[0]) for kind in calls.items()]

    def __enter__(self) -> SteadyCallers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        print("slowest calls:", ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in self._slowest_s.items()))

    def wait_for_round(self) -> None:
        """Return when calls of each kind that were sent from now on have ended."""
        before = self._ended_calls.copy()
        wait_until(lambda: all(self._ended_calls[thread.name] >= before[thread.name] + 2 for thread in self._threads))

    def wait_for_answers(self) -> None:
        """Return when calls of each kind that were sent from now on have got right answers."""
        before = self.answered.copy()
        wait_until(
            lambda: all(self.answered[thread.name] >= before[thread.name] + 2 for thread in self._threads),
            describe=lambda: self.failures[-5:],
        )

    def assert_served(self) -> None:
        """Fail if a call failed, or if a kind of call got no answer."""
        unanswered = [thread.name for thread in self._threads if not self.answered[thread.name]]
        assert not self.failures, f"{len(self.failures)} calls of others failed: {self.failures[:20]}"
        assert not unanswered, f"no answer to {unanswered}"

    def _run(self, kind: str, call: Callable[[], bool]) -> None:
        last_answer_s = time.monotonic()
        while True:
            started_s = time.monotonic()
            failure = _failure(call)
            ended_s = time.monotonic()
            if failure:
                self.failures.append(f"{kind}: {failure}")
            else:
                self.longest_gap_s[kind] = max(self.longest_gap_s[kind], ended_s - last_answer_s)
                last_answer_s = ended_s
                self.answered[kind] += 1
            self._ended_calls[kind] += 1
            self._slowest_s[kind] = max(self._slowest_s.get(kind, 0.0), ended_s - started_s)
            if self._ended.wait(self._interval_s):
                return


def _failure(call: Callable[[], bool]) -> str:
    """Make a call and return why it failed; empty if it got the right answer."""
    try:
        return "" if call() else "wrong answer"
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class PredictCallers(SteadyCallers):
    """Call Predict of a `half_plus` model for 0 over gRPC and REST, with clients that are not this project's.

    Args:
        server: the server.
        model: name of the model.
        right: the right answers: what versions of the model add.
        others: further kinds of calls, which return the answer.
        timeout_s: time limit of a call.
        interval_s: pause between two calls of a kind.

    Attributes:
        answers: the right answers seen so far, by kind.
    """

    def __init__(
        self,
        server: ServerProcess,
        model: str = "half_plus_two",
        right: Collection[float] = (2.0,),
        *,
        others: Mapping[str, Callable[[], float]] | None = None,
        timeout_s: float = 10.0,
        interval_s: float = 0.02,
    ) -> None:
        self._right = right
        self.answers: defaultdict[str, set[float]] = defaultdict(set)
        self._channel = grpc.insecure_channel(server.target, options=[("grpc.use_local_subchannel_pool", 1)])
        self._session = requests.Session()
        stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        request = grpc_calls.request(model=model, x=np.float32([0]))
        url = f"{server.url}/v1/models/{model}:predict"

        def send_rest() -> float:
            response = self._session.post(url, json={"instances": [0.0]}, timeout=timeout_s)
            response.raise_for_status()
            return float(response.json()["predictions"][0])

        kinds: dict[str, Callable[[], float]] = {
            "gRPC": lambda: stub.Predict(request, timeout=timeout_s).outputs["y"].float_val[0],
            "REST": send_rest,
            **(others or {}),
        }
        super().__init__({kind: self._checking(kind, send) for kind, send in kinds.items()}, interval_s=interval_s)

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        self._channel.close()
        self._session.close()

    def wait_for_answer(self, answer: float) -> None:
        """Return when callers of each kind have got this answer."""
        wait_until(
            lambda: all(answer in self.answers[thread.name] for thread in self._threads),
            describe=lambda: f"no {answer}: {dict(self.answers)}, {self.failures[-5:]}",
        )

    def _checking(self, kind: str, send: Callable[[], float]) -> Callable[[], bool]:
        def call() -> bool:
            answer = send()
            self.answers[kind].add(answer)
            return answer in self._right

        return call
