"""Chips are shared while a claim needs that, and no longer; flags that people set stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trio.testing import MockClock

from dev.rig.boards import a3, die
from tests.claims.flags import FlagFiles
from tests.claims.node import NodeOnDisk, claim, config, ref, result
from tests.claims.restarted import errors_in
from tests.claims.sharing import Driver, noted, sharing_driver
from tests.holds.entries import configured, entry, of_partition
from tests.synced import syncs
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.config.model import EffectiveConfig
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.entry import EntryState
from trio_npu_dra.ascend.dcmi.errors import Busy, DcmiError, NotPermitted, NotSupported, Slow
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.model import EMPTY_BOARD, Chip
from trio_npu_dra.kit.base.errors import DevicesUnknown

SET = "dcmi_set_device_share_enable"
SHARED = EffectiveConfig(shared=True)


@pytest.fixture
def driver(quick_node: NodeOnDisk) -> Driver:
    """Claims a, b and c have a share of NPU 2 each, d has all of NPU 3."""
    return sharing_driver(quick_node)


async def test_a_chip_is_shared_from_the_first_share_to_the_last(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """A claim that has an NPU alone changes nothing."""
    caplog.set_level("INFO")
    assert await driver.prepare("a", "d") == ""
    assert driver.flags.on == {2}
    assert driver.node.record("uid-a")["steps"] == ["share-flag"]
    assert driver.node.record("uid-d")["steps"] == []
    assert await driver.prepare("b", "c") == ""
    assert caplog.messages.count("NPU is shared from now on") == 1
    assert driver.ours.value == {"/dev/davinci2"}
    assert await driver.unprepare("a") == ""
    assert await driver.unprepare("c") == ""
    assert driver.flags.on == {2}

    assert await driver.unprepare("b") == ""

    assert driver.flags.on == set()
    assert driver.flags.changes == [(2, True), (2, False)]
    assert not noted(driver)
    assert driver.ours.value == frozenset()


async def test_a_flag_is_recorded_durably_while_it_is_set(driver: Driver) -> None:
    """The flag may outlast a power cut, so the file is on the disk before, and removed after."""
    with syncs(driver.node.root) as synced:
        await driver.prepare("a")
    assert any("share-flags.json" in files and "2" not in files for files in synced)
    with syncs(driver.node.root) as synced:
        await driver.unprepare("a")
    (files,) = synced
    assert files.keys().isdisjoint({"share-flags.json", "2"})


async def test_a_flag_that_people_set_stays(driver: Driver) -> None:
    """They set it before a claim needed it."""
    driver.flags.folder.mkdir()
    (driver.flags.folder / "2").touch()
    await driver.prepare("a", "b")
    assert not noted(driver)
    await driver.unprepare("a", "b")
    await driver.look()
    assert driver.flags.on == {2}
    assert driver.flags.changes == []


class Unreadable(FlagFiles):
    """Flags of chips that do not tell their processes."""

    async def processes(self, chip: Chip) -> tuple[int, ...]:
        """No answer."""
        del chip
        raise Slow(-8006, "dcmi_get_device_resource_info")


@pytest.mark.parametrize(
    ("flags", "users"),
    [
        (FlagFiles, "in use by process 4711, process 4712 ("),
        (Unreadable, "in use by a container whose processes are not told ("),
    ],
)
async def test_a_chip_in_use_is_not_shared_and_the_error_names_its_users(
    quick_node: NodeOnDisk, flags: type[FlagFiles], users: str
) -> None:
    """The next call shares it, once they have ended."""
    quick_node.source.store(claim("a", result("npu-2", share_id="1")))
    driver = Driver(quick_node, flags(quick_node.root / "flags", quick_node.board))
    driver.flags.used_by[2] = (4711, 4712)
    error = await driver.prepare("a")
    assert "npu-2" in error
    assert users in error
    assert driver.node.cdi_uids() == set()
    driver.flags.used_by.clear()
    assert await driver.prepare("a") == ""
    assert driver.flags.on == {2}


async def test_a_flag_is_cleared_when_the_last_processes_have_ended(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The unprepare tries again; when it gives up, the claim keeps the NPU."""
    del autojump_clock
    quick_node.source.store(*(claim(name, result("npu-2", share_id=name)) for name in "ab"))
    driver = Driver(quick_node, FlagFiles(quick_node.root / "flags", quick_node.board), Patience())
    await driver.prepare("a")
    driver.flags.faults.extend([Busy(-8013, SET)] * 3)
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == set()

    await driver.prepare("a")
    driver.flags.used_by[2] = (7,)
    assert "in use by process 7" in await driver.unprepare("a")
    assert driver.node.record("uid-a")["state"] == EntryState.UNDOING
    driver.flags.used_by.clear()
    await driver.prepare("b")
    await driver.unprepare("b")
    assert driver.flags.on == set(), "a claim that is being undone needs no flag"
    driver.change_chips(device_share=False)
    changes = len(driver.flags.changes)
    await driver.look()
    assert driver.node.record_uids() == set()
    assert len(driver.flags.changes) == changes


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (NotSupported(-8255, SET), "npu-2 cannot be shared by containers"),
        (NotPermitted(-8002, SET), "this driver may not change whether npu-2 is shared"),
        (Slow(-8006, SET), "the share flag of npu-2 cannot be changed"),
        (Busy(-8020, SET), "a container whose processes are not told"),
    ],
)
async def test_an_error_says_why_a_chip_is_not_shared(
    driver: Driver, fault: DcmiError, words: str
) -> None:
    """For the pod's owner; nothing is left of the claim afterwards."""
    driver.flags.faults.append(fault)
    assert words in await driver.prepare("a")
    assert await driver.unprepare("a") == ""
    assert not noted(driver)


async def test_a_config_has_a_chip_shared(driver: Driver) -> None:
    """By the containers of one claim, which has the NPU alone; also after a restart."""
    parameters = {
        "apiVersion": "npu.huawei.com/v1alpha1",
        "kind": "NpuConfig",
        "sharing": {"strategy": "Shared"},
    }
    driver.node.source.store(
        claim("s", result("npu-5"), config=[config("FromClaim", parameters)]),
        claim("other", result("npu-5")),
    )
    assert await driver.prepare("s") == ""
    assert "held by claim default/s" in await driver.prepare("other")
    driver = driver.restarted()
    assert await driver.prepare("s") == ""
    await driver.look()
    assert driver.flags.on == {5}
    assert await driver.unprepare("s") == ""
    assert driver.flags.on == set()


def test_neither_observers_nor_partitions_need_the_flag(driver: Driver) -> None:
    """Admin access needs no rights, and a vNPU is opened by itself."""
    step = ShareFlagStep(driver.ledger, driver.cdi, driver.node.board, driver.flags)
    own = configured("uid-a", SHARED)
    assert step.is_needed(own)
    observed = (given._replace(admin_access=True) for given in own.allocation)
    assert not step.is_needed(replace(own, allocation=tuple(observed)))
    partition = of_partition("uid-a")
    devices = tuple(device._replace(config=SHARED) for device in partition.devices)
    assert not step.is_needed(replace(partition, devices=devices))


async def test_a_flag_is_not_set_before_the_chips_are_known(driver: Driver) -> None:
    """Its claim waits for them."""
    driver.node.board.set(EMPTY_BOARD)
    step = ShareFlagStep(driver.ledger, driver.cdi, driver.node.board, driver.flags)
    with pytest.raises(DevicesUnknown):
        await step.do(entry("uid-a"))


async def test_calls_take_turns_at_flags(driver: Driver, autojump_clock: MockClock) -> None:
    """A call that waits for too long is refused."""
    del autojump_clock
    async with driver.ledger.alone("share flags"):
        assert "share flags has been worked on for 5 s" in await driver.prepare("a")
    assert await driver.prepare("a") == ""


# --- dies of one card ----------------------------------------------------------------------------


async def test_a_die_whose_sister_is_held_waits_for_it(driver: Driver) -> None:
    """The flag is the card's: it is cleared when the other claim has ended too."""
    driver.node.board.set(a3(*map(die, range(4)), policy=MultiDiePolicy.INDEPENDENT))
    driver.flags.used_by[3] = (9,)
    assert await driver.prepare("d") == ""
    assert "in use by process 9, claim default/d" in await driver.prepare("a")
    driver.flags.used_by.clear()
    assert await driver.prepare("a") == ""
    assert driver.flags.on == {2, 3}

    driver.flags.used_by[3] = (9,)
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2, 3}
    driver.flags.used_by.clear()
    assert await driver.unprepare("d") == ""
    await driver.look()
    assert driver.flags.on == set()


async def test_a_die_waits_for_a_sister_that_a_pod_has(driver: Driver) -> None:
    """The error names the pod."""
    driver.node.board.set(a3(die(2), die(3), policy=MultiDiePolicy.INDEPENDENT))
    async with driver.ledger.exclusive():
        given = ResourceDevice(resource="huawei.com/Ascend910", chip=die(3))
        driver.ledger.put(given.entry(namespace="ml", pod="train"))
    driver.flags.used_by[3] = (4711,)
    assert "in use by process 4711, pod ml/train (" in await driver.prepare("a")


async def test_a_die_that_is_not_listed_is_not_asked(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """Another chip may have its numbers now; so it is not shared, and its sister is."""
    sister = replace(die(2), unlisted=True, device_share=False)
    driver.node.board.set(a3(sister, die(3), policy=MultiDiePolicy.INDEPENDENT))
    driver.node.source.store(claim("s", result("npu-3", share_id="1")))
    assert "davinci2 cannot be shared now" in await driver.prepare("a")
    assert driver.flags.changes == []
    assert await driver.unprepare("a") == ""
    assert await driver.prepare("s") == ""
    assert driver.flags.on == {3}
    await driver.look()
    assert errors_in(caplog) == []
    assert await driver.unprepare("s") == ""
    assert driver.flags.on == set()


# --- names ---------------------------------------------------------------------------------------


async def test_each_share_has_a_name_of_its_own(driver: Driver) -> None:
    """A claim may have several of one NPU: containers get its nodes by each."""
    shares = [result("npu-2", f"r{n}", share_id=f"share-{n}") for n in (1, 2)]
    driver.node.source.store(claim("two", *shares))
    devices = (await driver.claims.prepare([ref("two")]))["uid-two"].devices
    names = [f"npu.huawei.com/npu=uid-two-npu-2-share-{n}" for n in (1, 2)]
    assert [device.cdi_device_ids for device in devices] == [(name,) for name in names]
    assert [(device.requests, device.share_id) for device in devices] == [
        (("r1",), "share-1"),
        (("r2",), "share-2"),
    ]
    given = driver.node.record("uid-two")["edits"]["devices"]
    assert [device["name"] for device in given] == [name.rpartition("=")[2] for name in names]
    assert given[0]["containerEdits"] == given[1]["containerEdits"]
