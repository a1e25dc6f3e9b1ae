"""Which chips an operator gives to which resource, and how their devices are called."""

from __future__ import annotations

import pytest

from tests.holds.entries import chip
from trio_npu_dra.errors import ConfigError
from trio_npu_dra.npu.model import ChipFamily
from trio_npu_dra.resources.names import USUAL, device_id, is_huaweis, physical_id
from trio_npu_dra.resources.selection import Selection

USUAL_910 = "huawei.com/Ascend910"


def test_nothing_is_selected_by_default() -> None:
    """All chips are in the DRA pool."""
    selection = Selection.parse("")
    assert not selection
    assert selection.resource_of(chip(0)) is None


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("all", [USUAL_910] * 4),
        ("1", [None, USUAL_910, None, None]),
        ("1-2=example.com/a", [None, "example.com/a", "example.com/a", None]),
        ("Ascend910B=example.com/a", ["example.com/a"] * 4),
        ("Ascend310P", [None] * 4),
        ("0=example.com/a,0-1,", ["example.com/a", USUAL_910, None, None]),
        ("all,0=example.com/a", [USUAL_910] * 4),
    ],
    ids=["all", "one", "a range", "a family", "another family", "two rules", "the first wins"],
)
def test_selectors(text: str, resources: list[str | None]) -> None:
    """By physical id, range, family or all; the first rule that fits decides."""
    selection = Selection.parse(text)
    assert selection
    assert [selection.resource_of(chip(number)) for number in range(4)] == resources
    assert selection.names("example.com/a") == ("example.com/a" in text)


def test_each_family_has_the_name_that_manifests_have() -> None:
    """Those of Huawei's device plugin."""
    assert USUAL.keys() == set(ChipFamily)
    assert {USUAL[family].partition("/")[2] for family in ChipFamily} == {
        *("Ascend310", "Ascend310P", "Ascend910", "npu"),
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("four", "'four' selects nothing"),
        ("=example.com/a", "'' selects nothing"),
        ("3-1", "the range 3-1 is empty"),
        ("all=", "'' is no resource"),
        ("all=Ascend910", "'Ascend910' is no resource"),
        (f"all=example.com/{'a' * 51}", "at most 50 characters"),
        (f"all={'a.' * 120}b/c", "is no resource"),
        ("all=node.kubernetes.io/npu", "keeps the domain node.kubernetes.io to itself"),
        ("all=requests.example.com/npu", "keeps the domain"),
    ],
)
def test_a_wrong_part_is_named(text: str, problem: str) -> None:
    """With the flag, and what is expected."""
    with pytest.raises(ConfigError) as raised:
        Selection.parse(f"Ascend310P,{text}")
    assert str(raised.value).startswith(f"--device-plugin={text}: ")
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("resource", "id_", "number"),
    [
        (USUAL_910, "Ascend910-3", 3),
        ("huawei.com/npu", "npu-12", 12),
        ("example.com/a", "a-0", 0),
        ("huawei.com/Ascend310P", "Ascend310P-1-99", 1),
        ("huawei.com/Ascend910-2c", "Ascend910-2c-100-7", 7),
        ("huawei.com/Ascend310P-4c.3cpu.ndvpp", "Ascend310P-4c.3cpu.ndvpp-101-2", 2),
        ("huawei.com/npu-core", "npu-core-5", None),
        (USUAL_910, "Ascend310P-3", None),
        (USUAL_910, "Ascend910-x", None),
        (USUAL_910, "3", None),
        ("example.com/a", "a-", None),
        (USUAL_910, f"Ascend910-{'9' * 30}", None),
    ],
)
def test_ids_tell_the_chip(resource: str, id_: str, number: int | None) -> None:
    """Ours, and those of Huawei's device plugin."""
    assert physical_id(resource, id_) == number


@pytest.mark.parametrize("resource", [USUAL_910, "example.com/Ascend910-2c"])
def test_our_ids_are_understood(resource: str) -> None:
    """There and back."""
    assert physical_id(resource, device_id(resource, 11)) == 11


def test_huaweis_resources_are_known_by_their_domain() -> None:
    """And no other's."""
    assert is_huaweis(USUAL_910)
    assert not is_huaweis("example.com/Ascend910")
