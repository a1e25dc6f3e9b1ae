"""Claims for partitions that somebody created on an NPU manually."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.claims.node import NodeOnDisk, board, claim, result
from tests.claims.restarted import prepare, unprepare
from trio_npu_dra.ascend.dcmi.types import Resources, VDevice
from trio_npu_dra.ascend.model import Board

RESOURCES = Resources(ai_cores=5)  # all that a 910 tells


def split_board(*vnpus: int) -> Board:
    """The node's board, of which NPU 2 is split into these vNPUs."""
    partitions = tuple(
        VDevice(id=vnpu, template="vir05_1c_8g", in_use=False, resources=RESOURCES)
        for vnpu in vnpus
    )
    whole = board()
    chips = list(whole.chips)
    chips[2] = replace(chips[2], vnpus=vnpus, vdevices=partitions)
    return replace(whole, chips=tuple(chips))


def vnpu_node(node: NodeOnDisk, vnpu: int) -> Path:
    """Where the host has the partition's device node."""
    return node.root / f"dev/vdavinci{vnpu}"


@pytest.fixture
async def partitions(node: NodeOnDisk) -> NodeOnDisk:
    """A node of which NPU 2 is split in two, one of which claim a has."""
    for vnpu in (132, 133):
        vnpu_node(node, vnpu).symlink_to("/dev/null")
    node.board.set(split_board(132, 133))
    node.source.store(
        claim("a", result("npu-2-vnpu-132")),
        claim("b", result("npu-2-vnpu-133")),
        claim("c", result("npu-2-vnpu-132")),
        claim("d", result("npu-2")),
    )
    assert await prepare(node, "a") == {"a": ""}
    return node


async def test_a_partition_is_an_npu_of_its_own_for_its_container(partitions: NodeOnDisk) -> None:
    """Under the path by which the Ascend driver knows it there, with the nodes that all share."""
    spec = json.loads(partitions.cdi_path("uid-a").read_bytes())
    (device,) = spec["devices"]
    assert device["name"] == "uid-a-npu-2-vnpu-132"
    (node,) = device["containerEdits"]["deviceNodes"]
    assert (node["path"], node["hostPath"]) == ("/dev/davinci132", "/dev/vdavinci132")
    shared = {node["path"] for node in spec["containerEdits"]["deviceNodes"]}
    names = ("davinci_manager", "devmm_svm", "hisi_hdc", "dvpp_cmdlist")
    assert shared == {f"/dev/{name}" for name in names}
    partitions.board.set(
        board()
    )  # it is answered from its record, which has all that is known of it
    assert await prepare(partitions, "a") == {"a": ""}
    async with (ledger := partitions.ledger()).exclusive():
        (chip,) = ledger.remembered_chips()
    assert (chip.vnpus, chip.vdevices[1].resources) == ((132, 133), RESOURCES)


async def test_partitions_exclude_themselves_and_their_chip_only(partitions: NodeOnDisk) -> None:
    """Also after somebody made the chip whole behind the driver's back."""
    assert await prepare(partitions, "b") == {"b": ""}
    assert (
        "device npu-2-vnpu-132 is held by claim default/a" in (await prepare(partitions, "c"))["c"]
    )
    partitions.board.set(board())
    assert await unprepare(partitions, "b") == {"b": ""}
    assert (
        "default/a (UID uid-a), which has npu-2-vnpu-132" in (await prepare(partitions, "d"))["d"]
    )
    assert await unprepare(partitions, "a") == {"a": ""}
    assert await prepare(partitions, "d") == {"d": ""}


async def test_a_partition_that_vanished_is_not_given_again(partitions: NodeOnDisk) -> None:
    """Its claim keeps it until its pods have ended, and can be unprepared."""
    vnpu_node(partitions, 132).unlink()
    partitions.board.set(split_board(133))
    assert "device npu-2-vnpu-132 does not exist" in (await prepare(partitions, "a"))["a"]
    assert partitions.record_uids() == {"uid-a"}
    assert await unprepare(partitions, "a") == {"a": ""}
    assert "does not exist on node" in (await prepare(partitions, "a"))["a"]


async def test_a_claim_moves_from_one_partition_to_another(partitions: NodeOnDisk) -> None:
    """Of the same chip, in one call with the claim that gets what it had."""
    partitions.source.store(
        claim("a", result("npu-2-vnpu-133")), claim("b", result("npu-2-vnpu-132"))
    )
    assert await prepare(partitions, "b", "a") == {"a": "", "b": ""}


async def test_a_partition_with_an_unreadable_record_is_not_given_again(
    partitions: NodeOnDisk,
) -> None:
    """Its CDI file says what is in use; the other partition is free."""
    (partitions.records_folder / "uid-a.json").write_text("{")
    assert "may be in use by the claim with UID uid-a" in (await prepare(partitions, "c"))["c"]
    assert await prepare(partitions, "b") == {"b": ""}
