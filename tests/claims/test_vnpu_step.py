"""Partitions are cut for claims and removed again, and nothing else is, whatever happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import trio

from dev.rig.waiting import until
from tests.claims.cut_node import HALF, CutNode, cut_node, quarter
from tests.claims.node import claim, result
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.division_poll import DivisionPoll
from trio_npu_dra.ascend.offers import not_partitioned
from trio_npu_dra.ascend.vnpus import Vnpus

NO_ANSWER = DcmiError(-8011, "dcmi_create_vdevice", "no answer could be received")
BUSY, NOT_PERMITTED, NOT_SUPPORTED = -8020, -8002, -8255


@pytest.fixture
async def node(tmp_path: Path, simulator: Path) -> AsyncIterator[CutNode]:
    """A server with eight 910B4, which are cut."""
    async with cut_node(tmp_path / "node", simulator) as node:
        with trio.fail_after(30):
            yield node


async def test_a_claim_gets_the_partitions_that_it_was_allocated(node: CutNode) -> None:
    """Of one chip and of two; each is a device of its own for the runtime."""
    node.store("a", quarter(0), f"npu-0-{HALF}-1", quarter(3, chip=1))
    driver = node.driver()

    assert await driver.prepare("a") == {"a": ""}

    assert [*node.templates(0).values()] == ["vir05_1c_8g", "vir10_3c_16g"]
    assert [*node.templates(1).values()] == ["vir05_1c_8g"]
    edits = node.disk.record("uid-a")["edits"]["devices"]
    nodes = [one["containerEdits"]["deviceNodes"][0] for one in edits]
    made = [*node.templates(0), *node.templates(1)]
    assert [one["hostPath"] for one in nodes] == [f"/dev/vdavinci{vnpu}" for vnpu in made]
    assert [one["path"] for one in nodes] == [f"/dev/davinci{vnpu}" for vnpu in made]
    assert len(await driver.devices("a")) == 3
    assert node.templates(0).keys() == set(made[:2])

    assert await driver.unprepare("a") == {"a": ""}
    assert (node.templates(0), node.templates(1)) == ({}, {})
    assert node.is_clean()


async def test_two_claims_have_a_partition_of_one_chip_each(node: CutNode) -> None:
    """Two instances prepare them at once; the same partition and the whole chip are refused."""
    for number, name in enumerate("abc"):
        node.store(name, quarter(number))
    node.store("twin", quarter(0))
    node.store("whole", "npu-0")
    one, other = node.driver(Patience(held=0.0)), node.driver(Patience(held=0.0))
    answers: dict[str, str] = {}

    async def prepare(driver_: object, *names: str) -> None:
        answers.update(await driver_.prepare(*names))  # type: ignore[attr-defined]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prepare, one, "a", "b")
        nursery.start_soon(prepare, other, "c")

    assert answers == {"a": "", "b": "", "c": ""}
    assert len(node.templates()) == 3
    for name in ("twin", "whole"):
        assert "is held by claim" in (await one.prepare(name))[name]
    await one.unprepare("a", "b")
    assert len(node.templates()) == 1
    await other.unprepare("c")
    assert node.is_clean()


async def test_what_others_cut_is_never_removed(node: CutNode) -> None:
    """Nor is its id taken."""
    taken = node.control.create_vnpu(0, "vir05_1c_8g", 115)
    await until(lambda: node.disk.board.value.chips[0].vnpus == (taken,))
    node.store("a", quarter(0))
    driver = node.driver()
    assert await driver.prepare("a") == {"a": ""}
    assert len(node.templates()) == 2
    await driver.unprepare("a")
    await driver.look()
    assert node.templates() == {taken: "vir05_1c_8g"}


async def test_a_vnpu_that_took_the_place_of_ours_is_not_removed(node: CutNode) -> None:
    """Somebody destroyed ours and made another one of that id."""
    node.store("a", quarter(0))
    driver = node.driver()
    await driver.prepare("a")
    (vnpu,) = node.templates()
    node.control.destroy_vnpu(0, vnpu)
    node.control.create_vnpu(0, "vir10_3c_16g", vnpu)
    assert await driver.unprepare("a") == {"a": ""}
    assert node.templates() == {vnpu: "vir10_3c_16g"}
    assert node.is_clean()


# --- failures ------------------------------------------------------------------------------------


async def test_a_create_that_fails_is_that_claims_error(node: CutNode) -> None:
    """It keeps its hold, gets nothing else instead, and the next call tries again."""
    node.control.set_return_code("dcmi_create_vdevice", -8005, device=0)
    node.store("a", quarter(0))
    node.store("b", quarter(0, chip=1))
    driver = node.driver()
    answers = await driver.prepare("a", "b")
    assert "npu-0-vir05-1c-8g-0 cannot be cut off npu-0: dcmi_create_vdevice" in answers["a"]
    assert answers["b"] == ""
    assert node.disk.cdi_uids() == {"uid-b"}
    assert node.disk.record("uid-a")["pieces"][quarter(0)]["vnpu"] is None
    node.control.release("dcmi_create_vdevice", device=0)
    assert await driver.prepare("a") == {"a": ""}
    await driver.unprepare("a", "b")
    assert node.is_clean()


def noted(node: CutNode, name: str) -> bool:
    """Whether a claim's record has the id of its partition, which is being cut then."""
    if f"uid-{name}" not in node.disk.record_uids():
        return False
    partitions = node.disk.record(f"uid-{name}")["pieces"].values()
    return all(partition["vnpu"] is not None for partition in partitions)


class Speechless(Vnpus):
    """Vnpus of chips whose answer is lost after each cut."""

    async def create(self, node: str, template: str, vnpu: int) -> int:
        """Cut, and fail."""
        await super().create(node, template, vnpu)
        raise NO_ANSWER


@pytest.mark.parametrize("then", ["unprepared", "prepared again"])
async def test_a_create_whose_answer_is_lost_leaves_nothing_that_nobody_knows(
    node: CutNode, then: str
) -> None:
    """What it made is the claim's, and is removed with it."""
    node.store("a", quarter(0))
    driver = node.driver(vnpus=Speechless)
    assert "no answer could be received" in (await driver.prepare("a"))["a"]
    (made,) = node.templates()
    if then == "prepared again":
        assert await driver.prepare("a") == {"a": ""}
        assert [*node.templates()] == [made]
    assert await driver.unprepare("a") == {"a": ""}
    assert node.templates() == {}
    assert node.is_clean()


async def test_a_chip_that_drops_out_while_it_is_cut_leaves_nothing(node: CutNode) -> None:
    """Its claim fails, and can be unprepared."""
    node.store("a", quarter(0))
    driver = node.driver()
    answers: dict[str, str] = {}
    node.control.hang("dcmi_create_vdevice", device=0)
    try:
        async with trio.open_nursery() as nursery:

            async def prepare() -> None:
                answers.update(await driver.prepare("a"))

            nursery.start_soon(prepare)
            await until(lambda: noted(node, "a"))
            node.control.set_gone(0)
            await until(lambda: node.disk.board.value.chips[0].gone)
            node.control.release("dcmi_create_vdevice", device=0)
    finally:
        node.control.release("dcmi_create_vdevice", device=0)
    assert "cannot be cut off npu-0" in answers["a"]
    assert node.disk.cdi_uids() == set()
    assert await driver.unprepare("a") == {"a": ""}
    assert "uid-a" not in node.disk.record_uids()


async def test_no_room_because_somebody_cut_by_hand_is_said(node: CutNode) -> None:
    """By the ids; the slices will say so too."""
    node.store("a", f"npu-0-{HALF}-1")
    driver = node.driver()
    board = node.disk.board.value
    for _ in range(2):
        node.control.create_vnpu(0, "vir10_3c_16g")
    node.disk.board.set(board)
    assert "vNPUs that were cut by hand (100, 101) may leave no room" in (
        await driver.prepare("a")
    ).get("a", "")


@pytest.mark.parametrize("code", [NOT_PERMITTED, NOT_SUPPORTED])
async def test_a_chip_that_the_library_does_not_cut_has_no_partitions_until_it_does(
    node: CutNode, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Which only two tries show, and the log says; other chips have theirs."""
    node.control.set_return_code("dcmi_create_vdevice", code, device=0)
    node.store("a", quarter(0))
    node.store("b", quarter(0, chip=1))
    driver = node.driver()
    answers = await driver.prepare("a", "b")
    assert f"returned {code}" in answers["a"]
    assert answers["b"] == ""
    assert not_partitioned(node.disk.board.value, node.partitioning.value) == {}
    await driver.prepare("a")
    reasons = not_partitioned(node.disk.board.value, node.partitioning.value)
    assert reasons.keys() == {"npu-0"}
    assert f"returned {code}" in reasons["npu-0"]
    assert [one.levelname for one in caplog.records if "is cut for claims" in one.message] == [
        "WARNING"
    ]
    node.control.release("dcmi_create_vdevice", device=0)
    assert await driver.prepare("a") == {"a": ""}
    assert not_partitioned(node.disk.board.value, node.partitioning.value) == {}


async def test_a_chip_in_use_is_named_with_who_uses_it(node: CutNode) -> None:
    """A chip that a container has as a whole cannot be cut."""
    node.control.set_return_code("dcmi_create_vdevice", BUSY, device=0)
    node.control.set_processes(0, [(4711, 1 << 20)])
    node.store("a", quarter(0))
    answer = (await node.driver().prepare("a"))["a"]
    words = "npu-0-vir05-1c-8g-0 cannot be cut off npu-0 now, which process 4711 uses: "
    assert answer.startswith(f"{words}dcmi_create_vdevice returned -8020")


async def test_a_partition_in_use_is_removed_once_it_is_free(node: CutNode) -> None:
    """Within the call: containers end a moment later than the kubelet says."""
    node.store("a", quarter(0))
    driver = node.driver(Patience())
    await driver.prepare("a")
    (vnpu,) = node.templates()
    node.control.use_vnpu(0, vnpu)
    async with trio.open_nursery() as nursery:

        async def end() -> None:
            await until(lambda: not node.disk.cdi_uids())
            node.control.use_vnpu(0, vnpu, in_use=False)

        nursery.start_soon(end)
        assert await driver.unprepare("a") == {"a": ""}
    assert node.is_clean()


async def test_a_record_has_its_vnpu_until_the_board_was_read(node: CutNode) -> None:
    """Else that one would be offered as cut by hand; also where the first try was given up."""
    node.store("a", quarter(0))
    await node.driver().prepare("a")
    (vnpu,) = node.templates()
    followed = node.splits
    for _ in range(2):
        node.splits = DivisionPoll()
        asked = trio.Event()

        async def read(asked: trio.Event = asked) -> None:
            asked.set()
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(node.splits.follow, node.disk.host, read, 60, looks=60))
            nursery.start_soon(node.driver().unprepare, "a")
            await asked.wait()
            nursery.cancel_scope.cancel()
        assert node.templates() == {}
        (partition,) = node.disk.record("uid-a")["pieces"].values()
        assert partition["vnpu"] == vnpu
    node.splits = followed
    assert await node.driver().unprepare("a") == {"a": ""}
    assert node.is_clean()


async def test_a_slow_create_keeps_no_other_claim_waiting(node: CutNode) -> None:
    """Nor the readings of health; a call that is given up leaves nothing that nobody knows."""
    node.store("slow", quarter(0))
    node.store("quick", quarter(0, chip=1))
    node.store("whole", "npu-2")
    driver = node.driver()
    node.control.hang("dcmi_create_vdevice", device=0)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(driver.prepare, "slow")
            await until(lambda: "uid-slow" in node.disk.record_uids())
            assert await driver.prepare("quick") == {"quick": ""}
            assert await driver.prepare("whole") == {"whole": ""}
            assert node.worker.written_off == 0
            nursery.cancel_scope.cancel()
        assert node.worker.written_off == 1
        assert "has not returned" in (await driver.prepare("slow"))["slow"]
    finally:
        node.control.release("dcmi_create_vdevice", device=0)
    await until(lambda: node.worker.written_off == 0)
    assert await driver.prepare("slow") == {"slow": ""}
    assert len(node.templates(0)) == 1
    await driver.unprepare("slow", "quick", "whole")
    assert node.is_clean()


async def test_a_partition_is_removed_without_the_device_nodes_that_containers_need(
    node: CutNode,
) -> None:
    """They are missing while the Ascend driver is unloaded or updated."""
    node.store("a", quarter(0), quarter(1))
    driver = node.driver()
    await driver.prepare("a")
    (node.disk.root / "dev" / "davinci_manager").unlink()
    assert await driver.unprepare("a") == {"a": ""}
    assert node.templates() == {}
    assert node.is_clean()


# --- what is lost --------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["a look", "a prepare"])
async def test_a_partition_that_is_lost_is_cut_again(node: CutNode, by: str) -> None:
    """Under its id, so that a container that starts again finds what its CDI file says."""
    node.store("a", quarter(0))
    driver = node.driver()
    await driver.prepare("a")
    before = node.templates()
    (file,) = node.disk.cdi_root.glob("*.json")
    content = file.read_bytes()
    (vnpu,) = before
    node.control.destroy_vnpu(0, vnpu)
    if by == "a look":
        await driver.look()
    else:
        assert await driver.prepare("a") == {"a": ""}
    assert node.templates() == before
    assert file.read_bytes() == content
    await driver.unprepare("a")
    assert node.is_clean()


@pytest.mark.parametrize("by", ["a look", "a prepare"])
async def test_a_partition_whose_id_another_one_has_is_cut_again_under_another_id(
    node: CutNode, by: str
) -> None:
    """A container must not get the larger one, which is of whoever made it by hand."""
    node.store("a", quarter(0))
    driver = node.driver()
    await driver.prepare("a")
    (vnpu,) = node.templates()
    node.control.destroy_vnpu(0, vnpu)
    node.control.create_vnpu(0, "vir10_3c_16g", vnpu)
    chips = node.disk.board
    await until(lambda: [one.template for one in chips.value.chips[0].vdevices] == ["vir10_3c_16g"])
    if by == "a look":
        await driver.look()
    else:
        assert await driver.prepare("a") == {"a": ""}
    made = node.disk.record("uid-a")["pieces"][quarter(0)]["vnpu"]
    assert made != vnpu
    assert node.templates() == {vnpu: "vir10_3c_16g", made: "vir05_1c_8g"}
    assert f"/dev/vdavinci{made}" in node.disk.cdi_path("uid-a").read_text()
    await until(lambda: set(chips.value.chips[0].vnpus) == {vnpu, made})
    every = available(chips.value, driver.holds, node.partitioning.value)
    held = next(one for one in every if one.name == quarter(0))
    assert held.of["ai-cores"] == 10  # of 20, of which the other one has half


async def test_a_partition_without_a_device_node_is_its_claims_error_until_there_is_one(
    node: CutNode, caplog: pytest.LogCaptureFixture
) -> None:
    """It is neither cut again nor shown to runtimes, and is said to be lost once."""
    node.store("a", quarter(0))
    driver = node.driver()
    await driver.prepare("a")
    before = node.templates()
    (vnpu,) = before
    device = node.disk.root / "dev" / f"vdavinci{vnpu}"
    away = device.rename(device.with_name("away"))
    for _ in range(3):
        await driver.look()
        assert node.disk.cdi_uids() == set()
    assert caplog.text.count("is lost and is done again") == 1
    assert "its device node does not exist" in (await driver.prepare("a"))["a"]
    away.rename(device)
    await driver.look()
    assert (node.disk.cdi_uids(), node.templates()) == ({"uid-a"}, before)


@pytest.mark.parametrize("recovers", [True, False])
@pytest.mark.parametrize("then", ["prepared again", "forgotten"])
async def test_a_reboot(node: CutNode, recovers: bool, then: str) -> None:
    """Whether vNPUs come back or not: no container has one, so they are removed first."""
    node.store("a", quarter(0))
    await node.driver().prepare("a")
    by_hand = node.control.create_vnpu(1, "vir10_3c_16g")
    node.control.set_vnpu_recovery(enabled=recovers)
    node.control.reboot()
    node.disk.reboot()
    driver = node.driver()
    if then == "forgotten":
        await driver.look()
    else:
        assert await driver.prepare("a") == {"a": ""}
        assert len(node.templates(0)) == 1
        await driver.unprepare("a")
    assert node.templates(0) == {}
    assert node.is_clean()
    assert node.templates(1) == ({by_hand: "vir10_3c_16g"} if recovers else {})


async def test_nobody_looks_on_what_is_cut_for_others(node: CutNode) -> None:
    """There may be nothing to look on."""
    node.disk.source.store(claim("a", result(quarter(0), admin_access=True)))
    assert "admin access to it is not possible" in (await node.driver().prepare("a"))["a"]
    assert node.is_clean()
