"""Which folders under a base path are versions, and which of them a policy wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from savedmodel_bakery.serving.models import storage
from savedmodel_bakery.serving.options.model_config import All, Latest, ModelConfig, Policy, Specific
from savedmodel_bakery.wire.status import Code, StatusError


def wanted(base_path: Path, policy: Policy) -> dict[int, str]:
    found = storage.wanted_versions(ModelConfig("m", str(base_path), policy))
    return {number: path.name for number, path in found.items()}


def make(base_path: Path, *names: str) -> Path:
    for name in names:
        (base_path / name).mkdir()
    return base_path


@pytest.mark.parametrize(
    ("name", "number"),
    [("1", 1), ("00000123", 123), ("-1", -1), ("+7", 7), (" 6", 6), ("9223372036854775807", 2**63 - 1)],
)
def test_a_whole_number_is_a_version(tmp_path: Path, name: str, number: int) -> None:
    assert {number: name} == wanted(make(tmp_path, name), All())


@pytest.mark.parametrize("name", ["abc", "v5", "3.tmp", "4.0", "1e3", "0x10", "9223372036854775808", ".staging-x", "١"])
def test_any_other_name_is_none(tmp_path: Path, name: str) -> None:
    assert {} == wanted(make(tmp_path, name), All())


def test_of_two_names_with_the_same_number_the_later_counts(tmp_path: Path) -> None:
    assert {13: "13"} == wanted(make(tmp_path, "13", "0013", "013"), All())


@pytest.mark.parametrize(
    ("policy", "numbers"),
    [
        pytest.param(Latest(1), {10}, id="latest is by number, not by name"),
        pytest.param(Latest(2), {9, 10}, id="latest two"),
        pytest.param(Latest(9), {2, 9, 10}, id="more than there are"),
        pytest.param(All(), {2, 9, 10}, id="all"),
        pytest.param(Specific(frozenset({2, 7})), {2}, id="specific, as far as there"),
        pytest.param(Specific(frozenset()), set(), id="specific none"),
    ],
)
def test_policies(tmp_path: Path, policy: Policy, numbers: set[int]) -> None:
    assert numbers == set(wanted(make(tmp_path, "2", "9", "10"), policy))


def test_a_missing_base_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StatusError) as refused:
        wanted(tmp_path / "none", All())
    assert Code.NOT_FOUND is refused.value.code
    assert f"Could not find base path {tmp_path / 'none'} for servable m with error" in refused.value.message
