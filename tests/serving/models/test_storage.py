"""Folders whose name is a number are versions, and the policy selects among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from savedmodel_bakery.serving.models import storage
from savedmodel_bakery.wire.model_config import All, Latest, ModelConfig, Policy, Specific
from savedmodel_bakery.wire.status import Code, StatusError


def wanted(base_path: Path, policy: Policy) -> dict[int, str]:
    versions = storage.wanted_versions(ModelConfig("m", str(base_path), policy))
    return {number: path.name for number, path in versions.items()}


def make(base_path: Path, *names: str) -> Path:
    for name in names:
        (base_path / name).mkdir()
    return base_path


@pytest.mark.parametrize(
    ("name", "number"),
    [("1", 1), ("00000123", 123), ("-1", -1), ("+7", 7), (" 6", 6), ("9223372036854775807", 2**63 - 1)],
)
def test_an_integer_is_a_version(tmp_path: Path, name: str, number: int) -> None:
    assert {number: name} == wanted(make(tmp_path, name), All())


@pytest.mark.parametrize("name", ["abc", "v5", "3.tmp", "4.0", "1e3", "0x10", "9223372036854775808", ".staging-x", "١"])
def test_other_names_are_ignored(tmp_path: Path, name: str) -> None:
    assert {} == wanted(make(tmp_path, name), All())


def test_the_last_of_several_names_with_the_same_number_counts(tmp_path: Path) -> None:
    assert {13: "13"} == wanted(make(tmp_path, "13", "0013", "013"), All())


@pytest.mark.parametrize(
    ("policy", "numbers"),
    [
        pytest.param(Latest(1), {10}, id="latest is by number, not by name"),
        pytest.param(Latest(2), {9, 10}, id="latest two"),
        pytest.param(Latest(9), {2, 9, 10}, id="latest nine of three"),
        pytest.param(All(), {2, 9, 10}, id="all"),
        pytest.param(Specific(frozenset({2, 7})), {2}, id="specific, one missing"),
        pytest.param(Specific(frozenset()), set(), id="specific none"),
    ],
)
def test_the_policy_selects_versions(tmp_path: Path, policy: Policy, numbers: set[int]) -> None:
    assert numbers == set(wanted(make(tmp_path, "2", "9", "10"), policy))


def test_a_missing_base_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StatusError) as caught:
        wanted(tmp_path / "none", All())
    assert Code.NOT_FOUND is caught.value.code
    assert f"Could not find base path {tmp_path / 'none'} for servable m with error" in caught.value.message


def test_a_base_path_with_a_nul_character_is_not_found() -> None:
    """A reload may contain any text; it must not disturb the other models."""
    with pytest.raises(StatusError, match=r"Could not find base path .* with error embedded null byte") as caught:
        wanted(Path("/no\0path"), All())
    assert Code.NOT_FOUND is caught.value.code
