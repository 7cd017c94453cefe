"""The message definitions are those of the official package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2

from savedmodel_bakery.wire import schema


def test_the_committed_definitions_are_what_the_script_makes(clone: Path, tmp_path: Path) -> None:
    made = tmp_path / "descriptors.binpb"
    subprocess.run([sys.executable, clone / "tools" / "make_descriptors.py", made], check=True, capture_output=True)
    committed = (clone / "wire" / "descriptors.binpb").read_bytes()
    expected = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    assert expected == descriptor_pb2.FileDescriptorSet.FromString(committed)


def test_every_call_of_both_services_is_known() -> None:
    assert {
        "Classify": "/tensorflow.serving.PredictionService/Classify",
        "GetModelMetadata": "/tensorflow.serving.PredictionService/GetModelMetadata",
        "GetModelStatus": "/tensorflow.serving.ModelService/GetModelStatus",
        "HandleReloadConfigRequest": "/tensorflow.serving.ModelService/HandleReloadConfigRequest",
        "MultiInference": "/tensorflow.serving.PredictionService/MultiInference",
        "Predict": "/tensorflow.serving.PredictionService/Predict",
        "Regress": "/tensorflow.serving.PredictionService/Regress",
    } == {name: method.path for name, method in schema.METHODS.items()}
