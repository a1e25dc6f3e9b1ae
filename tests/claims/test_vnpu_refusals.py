"""A partition is not cut where another task is at the chip, or the chip refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from trio.testing import MockClock

from tests.claims.chip_folders import Chips, FolderNode, quarter
from tests.holds.entries import of_partition
from trio_npu_dra.agent.claims.step_locks import StepLocks
from trio_npu_dra.agent.holds.encoding import with_devices
from trio_npu_dra.ascend.dcmi.errors import Busy, DcmiError
from trio_npu_dra.kit.base.errors import ClaimError, ClaimUnavailable, LockHeld


async def test_instances_take_turns_at_a_chip(
    folders: FolderNode, autojump_clock: MockClock
) -> None:
    """Neither cuts, nor removes, nor tells who has cut while the other is at it."""
    del autojump_clock
    driver = await folders.prepared()
    folders.store("b", quarter(1))
    async with StepLocks(folders.disk.state_folder).hold("davinci0"):
        assert "davinci0.lock" in await driver.prepare("b")
        assert "davinci0.lock" in await driver.unprepare("a")
        with pytest.raises(LockHeld):
            await folders.step().cut_by_hand("/dev/davinci0")
    assert await driver.unprepare("b") == ""
    await folders.end(driver)


async def test_no_id_is_taken_that_the_board_or_the_chip_has(folders: FolderNode) -> None:
    """Of a vNPU that is gone the Board may know the id; the highest free id is taken."""

    class Slow(Chips):
        def known(self, node: str) -> Mapping[int, str]:
            return {115: "vir10_3c_16g", **super().known(node)}

    (folders.path() / "114").write_text("vir05_1c_8g")
    folders.store("a", quarter(0))
    assert await folders.driver(vnpus=Slow).prepare("a") == ""
    assert folders.templates().keys() == {113, 114}
    for vnpu in range(100, 116):
        (folders.path() / str(vnpu)).write_text("vir05_1c_8g")
    folders.store("b", quarter(1))
    assert "no id of a vNPU is free" in await folders.driver().prepare("b")


class Refusing(Chips):
    """Vnpus of a chip that is not cut.

    Attributes:
        error: The refusal.
    """

    error = DcmiError(-8005, "dcmi_create_vdevice")

    async def create(self, node: str, template: str, vnpu: int) -> int:
        """Refuse."""
        del node, template, vnpu
        raise self.error


class Occupied(Refusing):
    """Vnpus of a chip in use, which does not tell its processes."""

    error = Busy(-8020, "dcmi_create_vdevice")


@pytest.mark.parametrize(
    ("vnpus", "changes", "words"),
    [
        (Refusing, {}, "npu-0: dcmi_create_vdevice returned -8005"),
        (Refusing, {"template": "vir99"}, "npu-0: its board has no template vir99"),
        (Occupied, {}, "npu-0 now: dcmi_create_vdevice returned -8020"),
    ],
)
async def test_an_error_says_why_a_chip_is_not_cut(
    folders: FolderNode, vnpus: type[Refusing], changes: dict[str, Any], words: str
) -> None:
    """For the pod's owner; only a chip in use is tried again within the call."""
    driver = await folders.prepared()
    known = driver.ledger.by_uid["uid-a"]
    (device,) = known.devices
    assert device.partition is not None
    (folders.path() / str(device.partition.vnpu)).unlink()
    partition = replace(device.partition, vnpu=None, **changes)
    async with driver.ledger.exclusive():
        again = driver.ledger.put(
            with_devices(known, (replace(device, partition=partition),), known.edits)
        )
    with pytest.raises(ClaimError, match=re.escape(words)) as refused:
        await folders.step(vnpus, driver.ledger).do(again)
    assert isinstance(refused.value, ClaimUnavailable) == (vnpus is Occupied)


async def test_a_partition_is_lost_without_its_vnpu_or_with_another(folders: FolderNode) -> None:
    """An entry may also name no vNPU; one that has its vNPU is left alone."""
    known = (await folders.prepared()).ledger.by_uid["uid-a"]
    step = folders.step()
    assert not step.is_lost(known)
    (device,) = known.devices
    assert device.partition is not None
    unnamed = replace(device, partition=replace(device.partition, vnpu=None))
    assert step.is_lost(replace(known, devices=(unnamed,)))
    (folders.path() / str(device.partition.vnpu)).write_text("vir10_3c_16g")
    assert step.is_lost(known)


def test_a_vnpu_that_people_cut_needs_no_step(folders: FolderNode) -> None:
    """It is there already, and stays when its claim ends."""
    assert not folders.step().is_needed(of_partition("uid-a"))
