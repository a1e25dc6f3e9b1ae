"""Labels and annotations of the Node, field by field as Huawei's device plugin writes them."""

from __future__ import annotations

import json

import pytest

from tests.mindcluster.chips import NETWORK, RESOURCE, a3, b4, duo, of_950
from trio_npu_dra.agent.mindcluster.node_facts import node_annotations, node_labels, usual_chips
from trio_npu_dra.ascend.model import Chip, ChipFamily

CHIP_NAME = "node.kubernetes.io/npu.chip.name"
MEMORY = "mind-cluster/npu-chip-memory"
POD = "huawei.com/topotree.superpodid"


def test_labels_of_a_910b() -> None:
    """What the first chip tells."""
    assert node_labels([b4(0), b4(1)]) == {
        "accelerator": "huawei-Ascend910",
        CHIP_NAME: "910B4",
        "servertype": "Ascend910B-20",
        MEMORY: "32G",
    }


def test_labels_of_other_families() -> None:
    """Each has its accelerator and type; places in super pods where chips have them."""
    assert node_labels([duo(0), duo(1)]) == {
        "accelerator": "huawei-Ascend310P",
        CHIP_NAME: "310P3",
        "servertype": "Ascend310P-8",
        "infer-card-type": "card-300i-duo",
    }
    mixed = node_labels([duo(0), duo(1, product_name="Atlas 300I Pro")])
    assert "infer-card-type" not in mixed
    on_a3, on_950 = node_labels([a3(0)]), node_labels([of_950(0)])
    assert on_a3 == on_a3 | {"servertype": "Ascend910A3-20", MEMORY: "32G", POD: "7"}
    assert on_950 == {
        "accelerator": "huawei-npu",
        CHIP_NAME: "Ascend950PR",
        "servertype": "npu-20",
        MEMORY: "32G",
        POD: "7",
        "huawei.com/topotree.rackid": "2",
        "huawei.com/topotree.serverid": "3",
    }


@pytest.mark.parametrize(
    ("chip", "key", "value"),
    [
        (b4(board_id=0x28), "accelerator-type", "card-910b-infer"),
        (b4(board_id=0x29), "accelerator-type", "card-910b-infer"),
        (b4(), "accelerator-type", None),
        (b4(ai_cores=None), "servertype", None),
        (b4(memory_bytes=None), MEMORY, None),
        (b4(memory_bytes=(32 << 30) - 1), MEMORY, "31G"),
        (b4(chip_name="910 B4"), CHIP_NAME, None),
        (b4(family=ChipFamily.ASCEND_310B), "accelerator", None),
        (a3(0, super_pod_id=None), POD, None),
        (a3(0, super_pod_id=0), POD, "0"),
        (a3(0), "huawei.com/topotree.serverid", None),
    ],
)
def test_what_no_chip_tells_is_no_label(chip: Chip, key: str, value: str | None) -> None:
    """Nor is what no label can have; memory is whole GiB, rounded down as in MindCluster."""
    assert node_labels([chip]).get(key) == value


def test_annotations_of_a_910b() -> None:
    """An address without its network, if one is known; and no super pod."""
    found = node_annotations([b4(0, network=NETWORK), b4(3)])
    assert json.loads(found.pop("baseDeviceInfos")) == {
        "Ascend910-0": {"IP": "192.168.100.4", "SuperDeviceID": 0},
        "Ascend910-3": {"IP": "", "SuperDeviceID": 0},
    }
    assert found == {"superPodID": "-2", "serverIndex": "-2", "serverType": ""}


def test_annotations_in_a_super_pod() -> None:
    """A chip that does not tell its place does not hide the node's."""
    found = node_annotations([a3(0, super_pod_id=None), a3(1)])
    infos = json.loads(found.pop("baseDeviceInfos"))
    assert infos["Ascend910-1"] == {"IP": "", "SuperDeviceID": 12582913}
    assert found == {"superPodID": "7", "serverIndex": "3", "serverType": "A3"}
    found = node_annotations([of_950(2)])
    assert json.loads(found["baseDeviceInfos"]) == {
        "npu-2": {"DeviceID": 2, "IP": "", "SuperDeviceID": 12582914}
    }
    assert (found["serverType"], found["rackID"]) == ("npu", "2")


def test_only_chips_of_the_usual_resource_are_told() -> None:
    """Volcano would place pods on all that are told; with none, nothing is told."""
    assert usual_chips({"example.com/odd": (b4(3),), RESOURCE: (b4(2), b4(1))}) == (b4(1), b4(2))
    assert usual_chips({RESOURCE: (duo(0),)}) == ()
    assert (node_labels([]), node_annotations([])) == ({}, {})
