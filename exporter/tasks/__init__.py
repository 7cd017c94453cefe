"""Tasks: what the outputs of a network mean. A task is a class like `Task`, chosen by `choose_task`."""

from savedmodel_bakery.exporter.tasks.choose import choose_task
from savedmodel_bakery.exporter.tasks.labelled import Labelled
from savedmodel_bakery.exporter.tasks.task import (
    Answers,
    Comparison,
    Doubt,
    LabelChange,
    NetworkResult,
    Signature,
    Task,
    Tolerance,
)

__all__ = [
    "Answers",
    "Comparison",
    "Doubt",
    "LabelChange",
    "Labelled",
    "NetworkResult",
    "Signature",
    "Task",
    "Tolerance",
    "choose_task",
]
