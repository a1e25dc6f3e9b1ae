"""Which chips an operator gives to which resource, and how their devices are called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.holds.entries import chip
from trio_npu_dra.agent.device_plugin.names import (
    USUAL,
    ResourceDeviceId,
    parse_cdi_name,
    parse_id,
    partition_resource,
    whole_resource,
)
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.ascend.splits import split_of
from trio_npu_dra.kit.base.errors import ConfigError

USUAL_910 = "huawei.com/Ascend910"


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
        (f"all=example.com/{'a' * 35}", "at most 34 characters"),
        (
            "all=example.com/npu-2c",
            "is a name for vNPUs: give that of whole NPUs, example.com/npu;",
        ),
        ("0=huawei.com/npu-core", "is a name for vNPUs that are split when a pod starts: leave "),
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


def test_dies_that_are_shared_together_are_not_shared_one_by_one() -> None:
    """A family that is named is refused; of the chips that there are they stay whole."""
    with pytest.raises(ConfigError) as raised:
        Selection.parse("Ascend310P,Ascend910A3=example.com/a", shares=4)
    assert str(raised.value) == (
        "--device-plugin-shares=4: the dies of an Ascend910A3 cannot be shared one by one: leave "
        "Ascend910A3 out of --device-plugin, or set --device-plugin-shares=1"
    )
    selection = Selection.parse("all", shares=4)
    assert selection.shares_of(chip(0)) == 4
    assert selection.shares_of(chip(0, ChipFamily.ASCEND_910_A3)) == 1


@pytest.mark.parametrize(
    ("resource", "id_", "said"),
    [
        (USUAL_910, "Ascend910-3", ResourceDeviceId(physical_id=3)),
        ("huawei.com/npu", "npu-12", ResourceDeviceId(physical_id=12)),
        ("example.com/a-5", "a-5-0", ResourceDeviceId(physical_id=0)),
        ("huawei.com/Ascend310P", "Ascend310P-1-99", ResourceDeviceId(physical_id=1, share=99)),
        (
            "huawei.com/Ascend910-2c",
            "Ascend910-2c-100-7",
            ResourceDeviceId(physical_id=7, vnpu=100),
        ),
        (
            "huawei.com/Ascend310P-4c.3cpu.ndvpp",
            "Ascend310P-4c.3cpu.ndvpp-101-2",
            ResourceDeviceId(physical_id=2, vnpu=101),
        ),
        ("huawei.com/npu-core", "npu-core-5", None),
        ("huawei.com/Ascend910-2c", "Ascend910-2c-7", None),
        (USUAL_910, "Ascend310P-3", None),
        (USUAL_910, "Ascend910-x", None),
        (USUAL_910, "3", None),
        ("example.com/a", "a-", None),
        (USUAL_910, f"Ascend910-{'9' * 30}", None),
    ],
)
def test_ids_tell_the_device(resource: str, id_: str, said: ResourceDeviceId | None) -> None:
    """Ours, and those of Huawei's device plugin; there and back."""
    assert parse_id(resource, id_) == said
    if said is not None:
        assert said.text(resource) == id_
    if said is not None and said.share is None:
        assert parse_cdi_name(id_) == said


VENDORS = {
    ChipFamily.ASCEND_310P: "1c 2c 2c.1cpu 4c 4c.3cpu 4c.3cpu.ndvpp 4c.4cpu.dvpp",
    ChipFamily.ASCEND_910: "2c 4c 8c 16c",
    ChipFamily.ASCEND_910B: "10c.3cpu.16g 10c.4cpu.16g.dvpp 10c.3cpu.16g.ndvpp 5c.1cpu.8g",
}


@pytest.mark.parametrize("family", VENDORS)
def test_vnpus_have_the_resources_that_manifests_have(family: ChipFamily) -> None:
    """Those of Huawei's device plugin, for each template."""
    split = split_of(replace(chip(0, family), board_id=0x41, memory_bytes=32 << 30))
    assert split is not None
    found = [partition_resource(USUAL[family], template.name) for template in split.templates]
    assert found == [f"{USUAL[family]}-{what}" for what in VENDORS[family].split(" ")]
    assert {whole_resource(resource or "") for resource in found} == {USUAL[family]}
