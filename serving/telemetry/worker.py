"""The metrics of a worker of a RabbitMQ queue."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from savedmodel_bakery.serving.telemetry.registry import REGISTRY

MESSAGES = Counter(
    "bakery_amqp_messages",
    "Messages that this worker has answered, by the status of the answer.",
    ("status",),
    registry=REGISTRY,
)
REDELIVERIES = Counter(
    "bakery_amqp_redeliveries",
    "Messages that this worker received although they had been delivered or attempted before.",
    registry=REGISTRY,
)
DEAD_LETTERS = Counter("bakery_amqp_dead_letters", "Messages that this worker has dead-lettered.", registry=REGISTRY)
WAITING_MESSAGES = Gauge(
    "bakery_amqp_waiting_messages", "Messages in the queue that wait for a worker.", ("queue",), registry=REGISTRY
)
WAITING_DEAD_LETTERS = Gauge(
    "bakery_amqp_waiting_dead_letters", "Dead letters of the queue.", ("queue",), registry=REGISTRY
)
CONSUMERS = Gauge("bakery_amqp_consumers", "Workers of the queue.", ("queue",), registry=REGISTRY)


def set_queue(queue: str, *, waiting: int, dead: int, consumers: int) -> None:
    """Publish what the broker says about the queue."""
    WAITING_MESSAGES.labels(queue).set(waiting)
    WAITING_DEAD_LETTERS.labels(queue).set(dead)
    CONSUMERS.labels(queue).set(consumers)


def forget_queue(queue: str) -> None:
    """Remove the queue's metrics, because the broker does not say anything about it now."""
    for metric in (WAITING_MESSAGES, WAITING_DEAD_LETTERS, CONSUMERS):
        metric.remove_by_labels({"queue": queue})
