"""The message definitions are those of the official package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2

from savedmodel_bakery.wire import schema


def test_the_committed_definitions_are_those_that_the_script_generates(clone: Path, tmp_path: Path) -> None:
    generated = tmp_path / "descriptors.binpb"
    subprocess.run(
        [sys.executable, clone / "tools" / "make_descriptors.py", generated], check=True, capture_output=True
    )
    committed = (clone / "wire" / "descriptors.binpb").read_bytes()
    expected = descriptor_pb2.FileDescriptorSet.FromString(generated.read_bytes())
    assert expected == descriptor_pb2.FileDescriptorSet.FromString(committed)


def test_all_methods_of_both_services_are_known() -> None:
    assert {
        "Classify": "/tensorflow.serving.PredictionService/Classify",
        "GetModelMetadata": "/tensorflow.serving.PredictionService/GetModelMetadata",
        "GetModelStatus": "/tensorflow.serving.ModelService/GetModelStatus",
        "HandleReloadConfigRequest": "/tensorflow.serving.ModelService/HandleReloadConfigRequest",
        "MultiInference": "/tensorflow.serving.PredictionService/MultiInference",
        "Predict": "/tensorflow.serving.PredictionService/Predict",
        "Regress": "/tensorflow.serving.PredictionService/Regress",
    } == {name: method.path for name, method in schema.METHODS.items()}
