"""docs/reference/limits.md has the values of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from savedmodel_bakery.answers import photo
from savedmodel_bakery.client.bulk import job
from savedmodel_bakery.client.commands import bench
from savedmodel_bakery.client.servers import MAX_TIMEOUT_S
from savedmodel_bakery.client.transports import amqp_frames, failures
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.recipe.preprocessing import MAX_SIZE
from savedmodel_bakery.exporter.tasks.classify import Classify
from savedmodel_bakery.exporter.tasks.heads import Heads
from savedmodel_bakery.serving.amqp import batching as amqp_batching
from savedmodel_bakery.serving.amqp import queues
from savedmodel_bakery.serving.commands import amqp as amqp_cli
from savedmodel_bakery.serving.options.config_files import BatchingParameters
from savedmodel_bakery.serving.options.flags import FLAGS
from savedmodel_bakery.serving.rest import connections
from savedmodel_bakery.wire import amqp as amqp_messages
from savedmodel_bakery.wire import attachments, dtypes
from savedmodel_bakery.wire.json import encode

WORK = {option.name: option.default for option in amqp_cli.cli.commands["work"].params}

VALUES = {
    "gRPC message": attachments.MAX_MESSAGE_BYTES,
    "REST body that is gzipped": FLAGS["max_unpacked_bytes"].default,
    "AMQP message": amqp_messages.MAX_MESSAGE_BYTES,
    "value or name quoted in a REST error": encode.SHOWN_BYTES,
    "dimensions of a tensor": dtypes.MAX_DIMENSIONS,
    "nesting of JSON": dtypes.MAX_DIMENSIONS,
    "pixels of an image": Recipe.FIELDS["max_pixels"].default,
    "side of the network's input": MAX_SIZE,
    "side of a photo for tasks": Heads.max_side,
    "images per request to `preprocess`": Recipe.FIELDS["max_pixels"].default,
    "images of a request per run": Recipe.FIELDS["rows_per_run"].default,
    "labels in a response": Recipe.FIELDS["top_k"].default,
    "difference of a probability": Classify.tolerance.atol,
    "run of a model for REST": FLAGS["rest_api_timeout_in_ms"].default,
    "gRPC port": FLAGS["port"].default,
    "attempts to load a version": FLAGS["max_num_load_retries"].default,
    "idle REST connection": connections._KEEP_ALIVE_S,
    "`max_batch_size`": BatchingParameters().max_batch_size,
    "`max_enqueued_batches`": BatchingParameters().max_enqueued_batches,
    "time of a call": MAX_TIMEOUT_S,
    "attempts of a call": failures.MAX_ATTEMPTS,
    "time of a worker's call": round(WORK["timeout_s"]),
    "photo of a bulk job": photo.MAX_PHOTO_BYTES,
    "request of a bulk job": job._REQUEST_BYTES,
    "concurrent callers": bench.MAX_CALLERS,
    "unacknowledged messages": WORK["prefetch"],
    "concurrent calls": WORK["calls"],
    "messages joined": WORK["batch_size"],
    "inputs of a message": amqp_batching._MAX_BYTES,
    "properties of a message": amqp_frames.MAX_BYTES,
    "values in the headers of a message": amqp_frames.MAX_VALUES,
    "tables and arrays": amqp_frames.MAX_NESTING,
    "message that a worker processes": WORK["max_message_bytes"],
    "rows of strings": WORK["max_rows"],
    "deliveries of a message": WORK["delivery_limit"],
    "attempts of a message": WORK["retry_attempts"],
    "dead letters": queues.MAX_REASONS,
}


@pytest.mark.parametrize("limit", VALUES)
def test_the_page_has_the_value_of_the_code(clone: Path, limit: str) -> None:
    page = (clone / "docs" / "reference" / "limits.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith(f"| {limit}")]
    numbers = re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", row))
    assert str(VALUES[limit]) in numbers, row
