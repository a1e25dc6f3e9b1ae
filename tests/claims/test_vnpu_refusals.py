"""A partition is not cut where another task is at the chip, or the chip refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from trio.testing import MockClock

from tests.claims.chip_folders import AWAY, Chips, FolderNode, quarter
from tests.holds.entries import of_partition
from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.dcmi.errors import Busy, DcmiError, NotReady
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.kit.base.errors import ClaimError, ClaimUnavailable


async def test_calls_take_turns_at_a_chip(folders: FolderNode, autojump_clock: MockClock) -> None:
    """None cuts or removes while another is at it."""
    del autojump_clock
    driver = await folders.prepared()
    folders.store("b", quarter(1))
    async with driver.ledger.alone("/dev/davinci0"):
        assert "/dev/davinci0 has been worked on for 5 s" in await driver.prepare("b")
        assert "/dev/davinci0 has been worked on for 5 s" in await driver.unprepare("a")
    assert await driver.unprepare("b") == ""
    await folders.end(driver)


async def test_no_id_is_taken_that_the_board_or_the_chip_has(folders: FolderNode) -> None:
    """Of a vNPU that is gone the Board may know the id; the highest free id is taken."""

    class Remembering(Chips):
        def known(self, node: str) -> Mapping[int, str]:
            return {115: "vir10_3c_16g", **super().known(node)}

    (folders.path() / "114").write_text("vir05_1c_8g")
    folders.store("a", quarter(0))
    assert await folders.driver(vnpus=Remembering).prepare("a") == ""
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


class Silent(Refusing):
    """Vnpus of a chip that does not answer in time."""

    error = NotReady(-8012, "dcmi_create_vdevice")


@pytest.mark.parametrize(
    ("vnpus", "changes", "words"),
    [
        (Refusing, {}, "npu-0: dcmi_create_vdevice returned -8005"),
        (Refusing, {"template": "vir99"}, "npu-0: its board has no template vir99"),
        (Silent, {}, "npu-0: dcmi_create_vdevice"),
        (Occupied, {}, "npu-0 now: dcmi_create_vdevice returned -8020"),
    ],
)
async def test_an_error_says_why_a_chip_is_not_cut(
    folders: FolderNode, vnpus: type[Refusing], changes: dict[str, Any], words: str
) -> None:
    """For the pod's owner; a chip that is refused for good is not tried again within the call."""
    ledger, again = await intended(folders, **changes)
    with pytest.raises(ClaimError, match=re.escape(words)) as refused:
        await folders.step(vnpus, ledger).do(again)
    assert isinstance(refused.value, ClaimUnavailable) == (vnpus is not Refusing)


async def intended(folders: FolderNode, **changes: Any) -> tuple[Ledger, Entry]:
    """The entry of claim a, whose partition is not cut yet, with other facts of that."""
    ledger = (await folders.prepared()).ledger
    known = ledger.by_uid["uid-a"]
    (device,) = known.devices
    assert device.partition is not None
    (folders.path() / str(device.partition.vnpu)).unlink()
    partition = replace(device.partition, vnpu=None, **changes)
    devices = (device._replace(partition=partition),)
    async with ledger.exclusive():
        return ledger, ledger.put(replace(known, devices=devices))


async def test_a_partition_that_was_never_cut_leaves_nothing(folders: FolderNode) -> None:
    """Its claim ends, whether the chip answers or not."""
    folders.store("a", quarter(0))
    driver = folders.driver(vnpus=Refusing)
    assert "returned -8005" in await driver.prepare("a")
    assert folders.disk.record("uid-a")["devices"][0]["deviceNodes"] == {}
    (folders.chips / AWAY).touch()
    assert await driver.unprepare("a") == ""
    assert folders.is_clean()


async def test_a_leftover_stays_one_while_its_chip_does_not_answer(folders: FolderNode) -> None:
    """One record for each partition, however many looks there are."""
    folders.store("a", quarter(0), quarter(2))
    driver = folders.driver()
    assert await driver.prepare("a") == ""
    (folders.chips / AWAY).touch()
    assert await driver.unprepare("a") == ""
    await driver.look()
    left = {f"vnpu-{vnpu}-of-uid-a" for vnpu in folders.templates()}
    assert folders.disk.record_uids() == left
    assert {len(folders.disk.record(uid)["allocation"]) for uid in left} == {1}


class Used(Chips):
    """Vnpus that containers use."""

    async def destroy(self, node: str, vnpu: int) -> None:
        """Refuse."""
        del node, vnpu
        raise Busy(-8020, "dcmi_set_destroy_vdevice")


class Replaced(Chips):
    """Vnpus of a die that another one has replaced."""

    def place_of(self, chip: Chip) -> str | None:
        """Nowhere."""
        del chip
        return None


@pytest.mark.parametrize(
    ("vnpus", "error", "left"), [(Used, "returned -8020", {"uid-a"}), (Replaced, "", set())]
)
async def test_a_vnpu_is_not_removed_that_is_in_use_or_on_another_die(
    folders: FolderNode, vnpus: type[Chips], error: str, left: set[str]
) -> None:
    """Its claim waits for containers, and for no die that is gone for good."""
    await folders.prepared()
    assert error in await folders.driver(vnpus=vnpus).unprepare("a")
    assert folders.disk.record_uids() == left
    assert len(folders.templates()) == 1


async def test_a_partition_is_lost_without_its_vnpu_or_with_another(folders: FolderNode) -> None:
    """An entry may also name no vNPU; one that has its vNPU is left alone."""
    known = (await folders.prepared()).ledger.by_uid["uid-a"]
    step = folders.step()
    assert not step.is_lost(known)
    (device,) = known.devices
    assert device.partition is not None
    unnamed = device._replace(partition=replace(device.partition, vnpu=None))
    assert step.is_lost(replace(known, devices=(unnamed,)))
    (folders.path() / str(device.partition.vnpu)).write_text("vir10_3c_16g")
    assert step.is_lost(known)


def test_a_vnpu_that_people_cut_needs_no_step(folders: FolderNode) -> None:
    """It is there already, and stays when its claim ends."""
    assert not folders.step().is_needed(of_partition("uid-a"))
