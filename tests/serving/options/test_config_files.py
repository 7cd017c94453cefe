"""Model configurations are accepted and rejected as by tensorflow_model_server."""

from __future__ import annotations

from pathlib import Path

import pytest

from savedmodel_bakery.serving.options.config_files import (
    OutsideRootsError,
    TextFormatError,
    check_base_paths,
    check_models,
    parse_model_roots,
    read_config_file,
    single_model,
)
from savedmodel_bakery.wire.model_config import All, Latest, ModelConfig, Policy, Specific
from savedmodel_bakery.wire.status import Code, StatusError


def read(tmp_path: Path, text: str) -> dict[str, ModelConfig] | None:
    path = tmp_path / "models.config"
    path.write_text(text)
    return read_config_file(path)


def config_list(body: str) -> str:
    return f"model_config_list {{ config {{ {body} }} }}"


def test_the_two_flags_define_one_model_with_the_default_policy() -> None:
    assert {"m": ModelConfig("m", "/models/m", Latest(1), {})} == single_model("m", "/models/m")


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
def test_version_policies_are_read(tmp_path: Path, policy: str, expected: Policy) -> None:
    models = read(tmp_path, config_list(f'name: "m", base_path: "/m"; model_platform: "tensorflow" {policy}'))
    assert expected == models["m"].policy


def read_and_check(
    tmp_path: Path, text: str, *current: str, available: int | None = None, labels_for_unavailable: bool = False
) -> None:
    """Read a configuration and check it against the names of the current models and their available version."""
    models = read(tmp_path, text)
    served = {name: ModelConfig(name, f"/{name}") for name in current}
    check_models(models, served, lambda _: {available}, labels_for_unavailable=labels_for_unavailable)


def test_labels_and_the_deprecated_model_type_are_read(tmp_path: Path) -> None:
    body = 'name: "m" base_path: "file:///b/m" model_type: TENSORFLOW version_labels { key: "stable" value: 4 }'
    model = read(tmp_path, config_list(body))["m"]
    assert ("m", "file:///b/m", Latest(1), {"stable": 4}) == (model.name, model.base_path, model.policy, model.labels)
    read_and_check(tmp_path, config_list(body), available=4)
    read_and_check(tmp_path, config_list(body), labels_for_unavailable=True)


def test_a_file_without_a_list_differs_from_an_empty_list(tmp_path: Path) -> None:
    assert read(tmp_path, "# nothing yet") is None
    assert {} == read(tmp_path, "model_config_list {}")


_OK = 'base_path: "/m" model_platform: "tensorflow"'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            f'name: "m" {_OK} }} config {{ name: "m" {_OK}',
            "Illegal to list model m multiple times in config list",
            id="duplicate name",
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
            id="platform and model type",
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
def test_invalid_configurations_are_rejected(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        read_and_check(tmp_path, config_list(body))
    assert (Code.INVALID_ARGUMENT, message) == (caught.value.code, caught.value.message)


_LABEL = 'version_labels { key: "stable" value: 77 }'
_NO_LABEL_YET = "Request to assign label to version 77 of model m, which is not currently available for inference"


@pytest.mark.parametrize(
    ("text", "current", "message"),
    [
        pytest.param(
            config_list('name: "a" base_path: "a" } config { name: "a" base_path: "a"'),
            (),
            "Illegal to list model a multiple times in config list",
            id="names come before base paths",
        ),
        pytest.param(
            config_list('name: "a" base_path: "/a" } config { name: "b" base_path: "b"'),
            (),
            "Expected model b to have an absolute path or URI; got base_path()=b",
            id="base paths come before platforms",
        ),
        pytest.param(
            config_list(f'name: "m" base_path: "/m" model_platform: "caffe" {_LABEL}'),
            ("m",),
            "Illegal to change a model's platform. For model m platform was tensorflow and new platform requested is "
            "caffe",
            id="a change of platform comes before labels",
        ),
        pytest.param(
            config_list(f'name: "m" base_path: "/m" model_platform: "caffe" {_LABEL}'),
            (),
            _NO_LABEL_YET,
            id="labels come before new platforms",
        ),
        pytest.param(
            "custom_model_config {}",
            (),
            "Missing custom_model_config_loader in ServerCore Options",
            id="custom configuration",
        ),
    ],
)
def test_errors_are_found_in_the_same_order(tmp_path: Path, text: str, current: tuple[str, ...], message: str) -> None:
    with pytest.raises(StatusError) as caught:
        read_and_check(tmp_path, text, *current)
    assert message == caught.value.message


def test_a_folder_instead_of_a_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(StatusError) as caught:
        read_config_file(tmp_path)
    assert f"FAILED_PRECONDITION: {tmp_path}; Is a directory" == str(caught.value)


def test_a_missing_and_an_empty_file_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(StatusError) as missing:
        read_config_file(tmp_path / "none")
    assert f"NOT_FOUND: {tmp_path / 'none'}; No such file or directory" == str(missing.value)
    with pytest.raises(StatusError) as empty:
        read(tmp_path, "")
    assert f"INVALID_ARGUMENT: {tmp_path / 'models.config'}; Invalid argument" == str(empty.value)


def test_a_parse_error_names_line_and_column(tmp_path: Path) -> None:
    with pytest.raises(TextFormatError) as caught:
        read(tmp_path, config_list('nme: "m"'))
    assert f"INVALID_ARGUMENT: Invalid protobuf file: '{tmp_path / 'models.config'}'" == str(caught.value)
    prefix = "Error parsing text-format tensorflow.serving.ModelServerConfig: 1:30: "
    assert caught.value.reason.startswith(prefix), caught.value.reason
    assert 'has no field named "nme"' in caught.value.reason


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An allowed folder with links to a model inside and to one outside, in a folder with a link to the allowed one."""
    for path in ("allowed/m", "allowed-not/m", "allowed/links"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "allowed/links/inside").symlink_to("../m")
    (tmp_path / "allowed/links/outside").symlink_to("../../allowed-not/m")
    (tmp_path / "link").symlink_to("allowed")
    return tmp_path


@pytest.mark.parametrize("path", ["allowed", "allowed/m", "allowed/missing/x", "allowed/links/inside", "link/m", "x\0"])
@pytest.mark.parametrize("folders", ["{root}/allowed", "{root}/link/", "/nosuch,{root}/allowed"])
def test_paths_below_an_allowed_folder_are_accepted(root: Path, folders: str, path: str) -> None:
    roots = parse_model_roots(folders.format(root=root))
    check_base_paths(single_model("m", f"{root}/{path}"), roots)
    check_base_paths(single_model("m", f"file://{root}/{path}"), roots)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("allowed-not/m", None),
        ("allowed/../allowed-not/m", "allowed-not/m"),
        ("allowed/links/outside", "allowed-not/m"),
        ("allowed/links/outside/1", "allowed-not/m/1"),
        ("missing", None),
        (".", None),
    ],
)
def test_other_paths_are_rejected(root: Path, path: str, target: str | None) -> None:
    roots = parse_model_roots(f"{root}/allowed,/data")
    with pytest.raises(OutsideRootsError) as caught:
        check_base_paths(single_model("m", f"{root}/{path}"), roots)
    assert Code.PERMISSION_DENIED is caught.value.code
    link = f" leads to {root}/{target}, which" if target else ""
    assert caught.value.message == (
        f"base path of model m: {root / path}{link} is not below an allowed folder: {root}/allowed, /data "
        "(--allowed_model_roots)"
    )


def test_a_uri_is_checked_as_the_path_that_would_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    roots = parse_model_roots(f"{root}/allowed")
    with pytest.raises(OutsideRootsError):
        check_base_paths(single_model("m", "file://../../allowed-not/m"), roots)


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("s3://bucket/models/m", True),
        ("s3://bucket/models", True),
        ("s3://bucket/models2/m", False),
        ("s3://bucket/models/../other", False),
        ("gs://bucket/models/m", False),
    ],
)
def test_a_url_must_be_below_an_allowed_one(url: str, is_allowed: bool) -> None:
    roots = parse_model_roots("/data,s3://bucket/models/")
    models = single_model("m", url)
    if is_allowed:
        check_base_paths(models, roots)
        return
    expected = f"base path of model m: {url} is not below an allowed folder: /data, s3://bucket/models/ "
    with pytest.raises(OutsideRootsError, match=f"^PERMISSION_DENIED: {expected}"):
        check_base_paths(models, roots)


def test_without_folders_every_path_is_allowed(tmp_path: Path) -> None:
    check_base_paths(single_model("m", str(tmp_path)), parse_model_roots(""))


@pytest.mark.parametrize("text", ["models", "/models,", "/a, /b"])
def test_relative_folders_are_rejected(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_model_roots(text)
    assert caught.value.message == f"invalid allowed_model_roots {text}: each folder must be an absolute path"
