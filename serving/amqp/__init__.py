"""Inference by message: a worker that answers questions from a queue of RabbitMQ; `wire.amqp` tells the messages."""
