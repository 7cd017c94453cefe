"""Model configuration is read and refused as tensorflow_model_server does."""

from __future__ import annotations

from pathlib import Path

import pytest

from savedmodel_bakery.serving.options import model_config as configuration
from savedmodel_bakery.serving.options.model_config import All, Latest, ModelConfig, Specific
from savedmodel_bakery.serving.options.text_format import TextFormatError
from savedmodel_bakery.wire.status import Code, StatusError


def read(tmp_path: Path, text: str) -> dict[str, ModelConfig] | None:
    path = tmp_path / "models.config"
    path.write_text(text)
    return configuration.read_config_file(path)


def listed(body: str) -> str:
    return f"model_config_list {{ config {{ {body} }} }}"


def test_two_flags_make_one_model_with_the_default_policy() -> None:
    assert {"m": ModelConfig("m", "/models/m", Latest(1), {})} == configuration.single_model("m", "/models/m")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("", Latest(1), id="default"),
        pytest.param("model_version_policy { latest { num_versions: 3 } }", Latest(3), id="latest"),
        pytest.param("model_version_policy { latest { num_versions: 0 } }", Latest(1), id="latest 0 counts as 1"),
        pytest.param("model_version_policy { all {} }", All(), id="all"),
        pytest.param(
            "model_version_policy { specific { versions: 2, versions: 5; } }",
            Specific(frozenset({2, 5})),
            id="specific",
        ),
    ],
)
def test_policies(tmp_path: Path, policy: str, expected: configuration.Policy) -> None:
    models = read(tmp_path, listed(f'name: "m", base_path: "/m"; model_platform: "tensorflow" {policy}'))
    assert expected == models["m"].policy


def checked(
    tmp_path: Path, text: str, *current: str, available: int | None = None, labels_for_unavailable: bool = False
) -> None:
    """Read a file and check it as one that follows some models of which one version answers, or none."""
    models = read(tmp_path, text)
    in_force = {name: ModelConfig(name, f"/{name}") for name in current}
    configuration.check(models, in_force, lambda _: {available}, labels_for_unavailable=labels_for_unavailable)


def test_labels_and_the_deprecated_type(tmp_path: Path) -> None:
    body = 'name: "m" base_path: "s3://b/m" model_type: TENSORFLOW version_labels { key: "stable" value: 4 }'
    found = read(tmp_path, listed(body))["m"]
    assert ("m", "s3://b/m", Latest(1), {"stable": 4}) == (found.name, found.base_path, found.policy, found.labels)
    checked(tmp_path, listed(body), available=4)
    checked(tmp_path, listed(body), labels_for_unavailable=True)


def test_a_file_without_models_is_of_no_kind_and_an_empty_list_is_one(tmp_path: Path) -> None:
    assert read(tmp_path, "# nothing yet") is None
    assert {} == read(tmp_path, "model_config_list {}")


_OK = 'base_path: "/m" model_platform: "tensorflow"'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            f'name: "m" {_OK} }} config {{ name: "m" {_OK}',
            "Illegal to list model m multiple times in config list",
            id="twice",
        ),
        pytest.param(
            'name: "m" base_path: "models/m" model_platform: "tensorflow"',
            "Expected model m to have an absolute path or URI; got base_path()=models/m",
            id="relative",
        ),
        pytest.param(
            'name: "m" model_platform: "tensorflow"',
            "Expected model m to have an absolute path or URI; got base_path()=",
            id="no base path",
        ),
        pytest.param(
            'name: "m" base_path: "/m"',
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            "ModelServerConfig::model_platform, model name is m",
            id="no platform",
        ),
        pytest.param(
            f'name: "m" {_OK} model_type: TENSORFLOW',
            "Illegal setting both ModelServerConfig::model_type (deprecated) and ModelServerConfig::model_platform, "
            "model name is m",
            id="platform twice",
        ),
        pytest.param(
            'name: "m" base_path: "/m" model_type: OTHER',
            "ModelServerConfig::model_type choice 2 not supported.",
            id="other type",
        ),
        pytest.param(
            'name: "m" base_path: "/m" model_platform: "torch"',
            "Model m requests unsupported platform torch",
            id="other platform",
        ),
    ],
)
def test_refusals(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        checked(tmp_path, listed(body))
    assert (Code.INVALID_ARGUMENT, message) == (refused.value.code, refused.value.message)


_LABEL = 'version_labels { key: "stable" value: 77 }'
_NO_LABEL_YET = "Request to assign label to version 77 of model m, which is not currently available for inference"


@pytest.mark.parametrize(
    ("text", "current", "message"),
    [
        pytest.param(
            listed('name: "a" base_path: "a" } config { name: "a" base_path: "a"'),
            (),
            "Illegal to list model a multiple times in config list",
            id="names come before base paths",
        ),
        pytest.param(
            listed('name: "a" base_path: "/a" } config { name: "b" base_path: "b"'),
            (),
            "Expected model b to have an absolute path or URI; got base_path()=b",
            id="base paths come before platforms",
        ),
        pytest.param(
            listed(f'name: "m" base_path: "/m" model_platform: "caffe" {_LABEL}'),
            ("m",),
            "Illegal to change a model's platform. For model m platform was tensorflow and new platform requested is "
            "caffe",
            id="a change of platform comes before labels",
        ),
        pytest.param(
            listed(f'name: "m" base_path: "/m" model_platform: "caffe" {_LABEL}'),
            (),
            _NO_LABEL_YET,
            id="labels come before new platforms",
        ),
        pytest.param(
            "custom_model_config {}",
            (),
            "Missing custom_model_config_loader in ServerCore Options",
            id="a kind that is not served",
        ),
    ],
)
def test_the_order_of_refusals(tmp_path: Path, text: str, current: tuple[str, ...], message: str) -> None:
    with pytest.raises(StatusError) as refused:
        checked(tmp_path, text, *current)
    assert message == refused.value.message


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(StatusError) as refused:
        configuration.read_config_file(tmp_path)
    assert f"FAILED_PRECONDITION: {tmp_path}; Is a directory" == str(refused.value)


def test_a_missing_and_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(StatusError) as missing:
        configuration.read_config_file(tmp_path / "none")
    assert f"NOT_FOUND: {tmp_path / 'none'}; No such file or directory" == str(missing.value)
    with pytest.raises(StatusError) as empty:
        read(tmp_path, "")
    assert f"INVALID_ARGUMENT: {tmp_path / 'models.config'}; Invalid argument" == str(empty.value)


def test_a_file_that_does_not_parse_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(TextFormatError) as refused:
        read(tmp_path, listed('nme: "m"'))
    assert f"INVALID_ARGUMENT: Invalid protobuf file: '{tmp_path / 'models.config'}'" == str(refused.value)
    place = "Error parsing text-format tensorflow.serving.ModelServerConfig: 1:30: "
    assert refused.value.reason.startswith(place), refused.value.reason
    assert 'has no field named "nme"' in refused.value.reason
