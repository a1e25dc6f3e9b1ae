"""Partitions are cut for claims and removed again, and nothing else is, whatever happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest
import trio

from dev.rig.waiting import until
from tests.claims.chip_folders import HALF, quarter
from tests.claims.cut_node import CutNode
from tests.claims.node import claim, ref, result
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.ascend.division_poll import DivisionPoll
from trio_npu_dra.ascend.offers import not_partitioned, template_key
from trio_npu_dra.ascend.vnpus import Vnpus

BUSY, NOT_PERMITTED, NOT_SUPPORTED, INVALID = -8020, -8002, -8255, -8001


async def test_a_claim_gets_the_partitions_that_it_was_allocated(cut: CutNode) -> None:
    """Of one chip and of two; each is a device of its own for the runtime."""
    cut.store("a", quarter(0), f"npu-0-{HALF}-1", quarter(3, chip=1))
    driver = cut.driver()

    assert await driver.prepare("a") == ""

    assert [*cut.templates(0).values()] == ["vir05_1c_8g", "vir10_3c_16g"]
    assert [*cut.templates(1).values()] == ["vir05_1c_8g"]
    edits = cut.disk.record("uid-a")["edits"]["devices"]
    nodes = [one["containerEdits"]["deviceNodes"][0] for one in edits]
    made = [*cut.templates(0), *cut.templates(1)]
    assert [one["hostPath"] for one in nodes] == [f"/dev/vdavinci{vnpu}" for vnpu in made]
    assert [one["path"] for one in nodes] == [f"/dev/davinci{vnpu}" for vnpu in made]
    assert len((await driver.claims.prepare([ref("a")]))["uid-a"].devices) == 3
    assert cut.templates(0).keys() == set(made[:2])

    assert await driver.unprepare("a") == ""
    assert (cut.templates(0), cut.templates(1)) == ({}, {})
    assert cut.is_clean()


async def test_a_vnpu_that_took_the_place_of_ours_is_not_removed(cut: CutNode) -> None:
    """Somebody destroyed ours and made another one of that id."""
    driver = await cut.prepared()
    (vnpu,) = cut.templates()
    cut.control.destroy_vnpu(0, vnpu)
    cut.control.create_vnpu(0, "vir10_3c_16g", vnpu)
    assert await driver.unprepare("a") == ""
    assert cut.templates() == {vnpu: "vir10_3c_16g"}
    assert cut.is_clean()


# --- failures ------------------------------------------------------------------------------------


async def test_no_room_because_somebody_cut_by_hand_is_said(cut: CutNode) -> None:
    """By the ids; the slices will say so too."""
    cut.store("a", f"npu-0-{HALF}-1")
    driver = cut.driver()
    board = cut.disk.board.value
    for _ in range(2):
        cut.control.create_vnpu(0, "vir10_3c_16g")
    cut.disk.board.set(board)
    error = await driver.prepare("a")
    assert "vNPUs that were cut by hand (100, 101) may leave no room" in error


@pytest.mark.parametrize("code", [NOT_PERMITTED, NOT_SUPPORTED])
async def test_a_chip_that_the_library_does_not_cut_has_no_partitions_until_it_does(
    cut: CutNode, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Which only two tries show, and the log says; other chips have theirs."""
    cut.control.set_return_code("dcmi_create_vdevice", code, device=0)
    cut.store("a", quarter(0))
    cut.store("b", quarter(0, chip=1))
    driver = cut.driver()
    assert f"returned {code}" in await driver.prepare("a", "b")
    assert cut.disk.cdi_uids() == {"uid-b"}
    assert not_partitioned(cut.disk.board.value, cut.partitioning.value) == {}
    await driver.prepare("a")
    reasons = not_partitioned(cut.disk.board.value, cut.partitioning.value)
    assert reasons.keys() == {"npu-0"}
    assert f"returned {code}" in reasons["npu-0"]
    assert [one.levelname for one in caplog.records if "cut for claims" in one.message] == [
        "WARNING"
    ]
    cut.control.release("dcmi_create_vdevice", device=0)
    assert await driver.prepare("a") == ""
    assert not_partitioned(cut.disk.board.value, cut.partitioning.value) == {}


@pytest.mark.parametrize("is_used", [False, True])
async def test_a_template_that_an_unused_chip_refuses_is_offered_of_no_chip_like_it(
    cut: CutNode, *, is_used: bool
) -> None:
    """After two tries; other templates are. A chip in use may have no room for what is refused."""
    cut.control.set_return_code("dcmi_create_vdevice", INVALID)
    if is_used:
        cut.control.set_processes(0, [(4711, 1 << 20)])
    cut.store("a", quarter(0))
    driver = cut.driver()

    def offered() -> set[str]:
        found = available(cut.disk.board.value, (), cut.partitioning.value)
        return {offer.partition.template for offer in found if offer.partition}

    before = offered()
    for _ in range(2):
        assert offered() == before
        assert "npu-smi info -t template-info" in await driver.prepare("a")
    reasons = not_partitioned(cut.disk.board.value, cut.partitioning.value)
    if is_used:
        assert (offered(), reasons) == (before, {})
        return
    assert offered() == before - {"vir05_1c_8g"}
    assert len(reasons) == 8
    assert "not by vir05_1c_8g: dcmi_create_vdevice returned -8001" in reasons["npu-7"]
    assert "npu-smi info -t template-info" in reasons["npu-7"]
    updated = replace(cut.disk.board.value, driver_version="another")
    assert not_partitioned(updated, cut.partitioning.value) == {}
    for template in before - {"vir05_1c_8g"}:
        refusals = dict(cut.partitioning.value.refusals)
        refusals[template_key(cut.disk.board.value, cut.disk.board.value.chips[0], template)] = "no"
        cut.partitioning.set(replace(cut.partitioning.value, refusals=refusals))
    assert offered() == set()
    found = available(cut.disk.board.value, (), cut.partitioning.value)
    assert [offer.name for offer in found] == [f"npu-{number}" for number in range(8)]


async def test_a_chip_whose_vnpus_cannot_be_read_is_named(cut: CutNode) -> None:
    """An error of a C function alone would not say which of a claim's devices has it."""
    cut.control.set_return_code("dcmi_get_device_info", INVALID, device=0)
    cut.store("a", quarter(0, chip=1), quarter(0))
    answer = await cut.driver().prepare("a")
    words = "npu-0-vir05-1c-8g-0: the vNPUs of its NPU cannot be read: "
    assert answer.startswith(f"{words}dcmi_get_device_info returned -8001")


async def test_a_chip_in_use_is_named_with_who_uses_it(cut: CutNode) -> None:
    """A chip that a container has as a whole cannot be cut."""
    cut.control.set_return_code("dcmi_create_vdevice", BUSY, device=0)
    cut.control.set_processes(0, [(4711, 1 << 20)])
    cut.store("a", quarter(0))
    answer = await cut.driver().prepare("a")
    words = "npu-0-vir05-1c-8g-0 cannot be cut off npu-0 now, which process 4711 uses: "
    assert answer.startswith(f"{words}dcmi_create_vdevice returned -8020")


async def test_a_partition_in_use_is_removed_once_it_is_free(cut: CutNode) -> None:
    """Within the call: containers end a moment later than the kubelet says."""
    cut.store("a", quarter(0))
    driver = cut.driver(Patience())
    await driver.prepare("a")
    (vnpu,) = cut.templates()
    cut.control.use_vnpu(0, vnpu)
    async with trio.open_nursery() as nursery:

        async def end() -> None:
            await until(lambda: not cut.disk.cdi_uids())
            cut.control.use_vnpu(0, vnpu, in_use=False)

        nursery.start_soon(end)
        assert await driver.unprepare("a") == ""
    assert cut.is_clean()


async def test_a_record_has_its_vnpu_until_the_board_was_read(cut: CutNode) -> None:
    """Else it would be offered as created manually; also where the first try was given up."""
    await cut.prepared()
    (vnpu,) = cut.templates()
    followed = cut.division
    for _ in range(2):
        cut.division = DivisionPoll()
        asked = trio.Event()

        async def read(asked: trio.Event = asked) -> None:
            asked.set()
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(cut.division.follow, cut.disk.host, read, 60, looks=60))
            nursery.start_soon(cut.driver().unprepare, "a")
            await asked.wait()
            nursery.cancel_scope.cancel()
        assert cut.templates() == {}
        (partition,) = cut.disk.record("uid-a")["pieces"].values()
        assert partition["vnpu"] == vnpu
    cut.division = followed
    assert await cut.driver().unprepare("a") == ""
    assert cut.is_clean()


async def test_a_slow_create_keeps_no_other_claim_waiting(cut: CutNode) -> None:
    """Nor the readings of health; a call that is given up leaves nothing that nobody knows."""
    cut.store("slow", quarter(0))
    cut.store("quick", quarter(0, chip=1))
    cut.store("whole", "npu-2")
    driver = cut.driver()
    cut.control.hang("dcmi_create_vdevice", device=0)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(driver.prepare, "slow")
            await until(lambda: "uid-slow" in cut.disk.record_uids())
            assert await driver.prepare("quick") == ""
            assert await driver.prepare("whole") == ""
            assert cut.worker.written_off == 0
            nursery.cancel_scope.cancel()
        assert cut.worker.written_off == 1
        assert "has not returned" in await driver.prepare("slow")
    finally:
        cut.control.release("dcmi_create_vdevice", device=0)
    await until(lambda: cut.worker.written_off == 0)
    assert await driver.prepare("slow") == ""
    assert len(cut.templates(0)) == 1
    await driver.unprepare("slow", "quick", "whole")
    assert cut.is_clean()


async def test_a_partition_is_removed_without_the_device_nodes_that_containers_need(
    cut: CutNode,
) -> None:
    """They are missing while the Ascend driver is unloaded or updated."""
    cut.store("a", quarter(0), quarter(1))
    driver = cut.driver()
    await driver.prepare("a")
    (cut.disk.root / "dev" / "davinci_manager").unlink()
    await cut.end(driver)


# --- what is lost --------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["a look", "a prepare"])
async def test_a_partition_that_is_lost_is_cut_again(cut: CutNode, by: str) -> None:
    """Under its id, so that a container that starts again finds what its CDI file says."""
    driver = await cut.prepared()
    before = cut.templates()
    (file,) = cut.disk.cdi_root.glob("*.json")
    content = file.read_bytes()
    (vnpu,) = before
    cut.control.destroy_vnpu(0, vnpu)
    if by == "a look":
        await driver.look()
    else:
        assert await driver.prepare("a") == ""
    assert cut.templates() == before
    assert file.read_bytes() == content
    await driver.unprepare("a")
    assert cut.is_clean()


@pytest.mark.parametrize("by", ["a look", "a prepare"])
async def test_a_partition_whose_id_another_one_has_is_cut_again_under_another_id(
    cut: CutNode, by: str
) -> None:
    """A container must not get the larger one, which belongs to whoever created it."""
    driver = await cut.prepared()
    (vnpu,) = cut.templates()
    cut.control.destroy_vnpu(0, vnpu)
    cut.control.create_vnpu(0, "vir10_3c_16g", vnpu)
    chips = cut.disk.board
    await until(lambda: [one.template for one in chips.value.chips[0].vdevices] == ["vir10_3c_16g"])
    if by == "a look":
        await driver.look()
    else:
        assert await driver.prepare("a") == ""
    made = cut.disk.record("uid-a")["pieces"][quarter(0)]["vnpu"]
    assert made != vnpu
    assert cut.templates() == {vnpu: "vir10_3c_16g", made: "vir05_1c_8g"}
    assert f"/dev/vdavinci{made}" in cut.disk.cdi_path("uid-a").read_text()
    await until(lambda: set(chips.value.chips[0].vnpus) == {vnpu, made})
    every = available(chips.value, driver.holds, cut.partitioning.value)
    held = next(one for one in every if one.name == quarter(0))
    assert held.of["ai-cores"] == 10  # of 20, of which the other one has half


async def test_a_partition_without_a_device_node_is_its_claims_error_until_there_is_one(
    cut: CutNode, caplog: pytest.LogCaptureFixture
) -> None:
    """It is neither cut again nor shown to runtimes, and is reported as lost once."""
    driver = await cut.prepared()
    before = cut.templates()
    (vnpu,) = before
    device = cut.disk.root / "dev" / f"vdavinci{vnpu}"
    away = device.rename(device.with_name("away"))
    for _ in range(3):
        await driver.look()
        assert cut.disk.cdi_uids() == set()
    assert caplog.text.count("is lost and is done again") == 1
    assert "its device node does not exist" in await driver.prepare("a")
    away.rename(device)
    await driver.look()
    assert (cut.disk.cdi_uids(), cut.templates()) == ({"uid-a"}, before)


@pytest.mark.parametrize("recovers", [True, False])
@pytest.mark.parametrize("then", ["prepared again", "forgotten"])
async def test_a_reboot(cut: CutNode, recovers: bool, then: str) -> None:
    """Whether vNPUs come back or not: no container has one, so they are removed first."""
    await cut.prepared()
    by_hand = cut.control.create_vnpu(1, "vir10_3c_16g")
    cut.control.set_vnpu_recovery(enabled=recovers)
    cut.control.reboot()
    cut.disk.reboot()
    driver = cut.driver()
    if then == "forgotten":
        await driver.look()
    else:
        assert await driver.prepare("a") == ""
        assert len(cut.templates(0)) == 1
        await driver.unprepare("a")
    assert cut.templates(0) == {}
    assert cut.is_clean()
    assert cut.templates(1) == ({by_hand: "vir10_3c_16g"} if recovers else {})


async def test_nobody_looks_on_what_is_cut_for_others(cut: CutNode) -> None:
    """There may be nothing to look on."""
    cut.disk.source.store(claim("a", result(quarter(0), admin_access=True)))
    assert "admin access to it is not possible" in await cut.driver().prepare("a")
    assert cut.is_clean()


@pytest.mark.parametrize("name", ["", "vir99", "\x7f"])
async def test_a_name_of_no_template_makes_no_other_vnpu_of_a_claims(
    cut: CutNode, name: str
) -> None:
    """However often the library says it: nothing is cut again, removed or published meanwhile."""
    await cut.prepared()
    (vnpu,) = before = cut.templates()

    class Garbled(Vnpus):
        async def of(self, node: str) -> Mapping[int, str]:
            return dict.fromkeys(await super().of(node), name)

        def known(self, node: str) -> Mapping[int, str]:
            return dict.fromkeys(super().known(node), name)

    garbled = cut.driver(vnpus=Garbled)
    await garbled.look()
    assert await garbled.prepare("a") == ""
    assert cut.templates() == before
    assert cut.disk.record("uid-a")["pieces"][quarter(0)]["vnpu"] == vnpu
    assert await garbled.unprepare("a") == ""
    assert cut.templates() == before
    assert cut.disk.record_uids() == {f"vnpu-{vnpu}-of-uid-a"}
    await cut.driver().look()
    assert (cut.templates(), cut.is_clean()) == ({}, True)
