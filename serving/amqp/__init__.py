"""The AMQP worker: processes requests from a RabbitMQ queue; `wire.amqp` describes the messages."""
