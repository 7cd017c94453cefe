"""Photos in, rows out, by several callers at once; bounded, so that memory doesn't grow with the number of photos."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from queue import SimpleQueue
from threading import Event

from tenacity import Retrying, retry_if_exception, stop_after_delay, stop_when_event_set, wait_random_exponential
from tenacity.nap import sleep_using_event

from savedmodel_bakery.client.bulk.classify import classify_photos
from savedmodel_bakery.client.bulk.photos import Photo
from savedmodel_bakery.client.bulk.rows import Row
from savedmodel_bakery.client.client import Client
from savedmodel_bakery.client.errors import ConnectionFailedError, DeadlineExceededError, RequestRefusedError
from savedmodel_bakery.client.images import encode_images, read_classifications
from savedmodel_bakery.client.results import Prediction
from savedmodel_bakery.wire.status import Code

# Of one request; the first photo beyond it goes into the next.
_BATCH_BYTES = 4 << 20
_LONGEST_WAIT_S = 10.0

# A server that comes and goes says these; one that closes says CANCELLED to those whom it leaves.
_AWAY = (Code.UNAVAILABLE, Code.CANCELLED)


class Job:
    """Asks about photos in batches.

    What met no server, no answer in time, or UNAVAILABLE, is asked again with growing pauses; a batch that is refused
    is asked about photo by photo, and of these also what was answered RESOURCE_EXHAUSTED is asked again.

    Args:
        clients: as many requests are open at once.
        model: name of the model that they ask.
        signature: one with the outputs of `top_k`.
        batch_size: most photos of a request.
        retry_s: how long a request is asked again.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        *,
        model: str,
        signature: str,
        batch_size: int,
        retry_s: float,
    ) -> None:
        self._idle: SimpleQueue[Client] = SimpleQueue()
        for client in clients:
            self._idle.put(client)
        self._model = model
        self._signature = signature
        self._batch_size = batch_size
        self._stopped = Event()
        # One for all requests: what it is made of stays as long as the thread that has used it.
        self._again = {alone: self._retrying(retry_s, alone=alone) for alone in (True, False)}
        # Twice as many as may ask: the others read their photos meanwhile.
        self._workers = 2 * len(clients)

    def check(self) -> None:
        """Ask about an image of no bytes, so that what is wrong with server, model or signature is told at once.

        Raises:
            ClientError: what no photo would change.
        """
        client = self._idle.get()
        try:
            read_classifications(self._predict(client, [b""]), batch=1, top_k=None)
        finally:
            self._idle.put(client)

    def run(self, photos: Iterable[Photo]) -> Iterator[list[Row]]:
        """Classify photos; their rows come as they are answered.

        Raises:
            ClientError: there is no server any more, it doesn't answer, or it says what no photo would change.
        """
        pool = ThreadPoolExecutor(self._workers)
        try:
            waiting: set[Future[list[Row]]] = set()
            for batch in _batches(photos, self._batch_size):
                waiting.add(pool.submit(self._classify, batch))
                if len(waiting) >= self._workers:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            yield from (future.result() for future in as_completed(waiting))
        finally:
            self._stopped.set()
            pool.shutdown(cancel_futures=True)

    def _classify(self, batch: Sequence[Photo]) -> list[Row]:
        return classify_photos(batch, self._predict_again, model=self._model, signature=self._signature)

    def _predict_again(self, images: list[bytes]) -> Prediction:
        """Predict by the next client that is free, until it succeeds or may not any more."""
        client = self._idle.get()
        try:
            return self._again[len(images) == 1](self._predict, client, images)
        finally:
            self._idle.put(client)

    def _retrying(self, limit_s: float, *, alone: bool) -> Retrying:
        return Retrying(
            retry=retry_if_exception(lambda exc: _will_pass(exc, alone=alone)),
            wait=wait_random_exponential(multiplier=0.2, max=_LONGEST_WAIT_S),
            stop=stop_after_delay(limit_s) | stop_when_event_set(self._stopped),
            sleep=sleep_using_event(self._stopped),
            reraise=True,
        )

    def _predict(self, client: Client, images: list[bytes]) -> Prediction:
        return client.predict(encode_images(images), signature=self._signature)


def _batches(photos: Iterable[Photo], size: int) -> Iterator[list[Photo]]:
    batch: list[Photo] = []
    n_bytes = 0
    for photo in photos:
        if batch and (len(batch) == size or n_bytes + photo.n_bytes > _BATCH_BYTES):
            yield batch
            batch, n_bytes = [], 0
        batch.append(photo)
        n_bytes += photo.n_bytes
    if batch:
        yield batch


def _will_pass(exc: BaseException, *, alone: bool) -> bool:
    if isinstance(exc, RequestRefusedError):
        return exc.code in _AWAY or (alone and exc.code is Code.RESOURCE_EXHAUSTED)
    return isinstance(exc, (ConnectionFailedError, DeadlineExceededError))
