"""Chips are shared while a claim needs that, and never longer; what people have set stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trio.testing import MockClock

from dev.rig.boards import a3, die
from tests import foreign
from tests.claims.flags import FlagFiles
from tests.claims.instance import Instance
from tests.claims.node import AT_ONCE, DRIVER, NodeOnDisk, claim, ref, result
from tests.claims.test_cancelled import cancelled_at, keep_busy
from tests.synced import syncs
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.claims.share_flag import ShareFlagStep
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.ascend.dcmi.errors import Busy, DcmiError, NotPermitted, NotSupported, Slow
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.model import EMPTY_BOARD, Chip
from trio_npu_dra.kit.api.objects import AllocationConfiguration, OpaqueConfiguration

SET = "dcmi_set_device_share_enable"


class Driver(Instance):
    """One instance that shares chips."""

    def __init__(self, node: NodeOnDisk, flags: FlagFiles, patience: Patience = AT_ONCE) -> None:
        self.flags = flags
        super().__init__(
            node,
            lambda ledger, cdi: [ShareFlagStep(ledger, cdi, node.board, flags)],
            patience=patience,
        )

    def anew(self) -> Driver:
        """The next instance."""
        return Driver(self.node, self.flags)


@pytest.fixture
def driver(quick_node: NodeOnDisk) -> Driver:
    """Claims a, b and c have a share of NPU 2 each, d has all of NPU 3."""
    shares = [claim(name, result("npu-2", share_id=f"share-{name}")) for name in "abc"]
    quick_node.source.store(*shares, claim("d", result("npu-3")))
    return Driver(quick_node, FlagFiles(quick_node.root / "flags", quick_node.board))


def noted(driver: Driver) -> bool:
    """Whether the driver remembers that it has set a flag."""
    return (driver.node.state_folder / "share-flags.json").exists()


async def test_what_is_shared_is_known_after_a_power_cut(driver: Driver) -> None:
    """The flag may outlast it, so the file has its name on the disk before, and loses it after."""
    with syncs(driver.node.root) as synced:
        await driver.prepare("a")
    assert any("share-flags.json" in files and "2" not in files for files in synced)
    with syncs(driver.node.root) as synced:
        await driver.unprepare("a")
    assert "share-flags.json" in synced[0]
    assert "share-flags.json" not in synced[-1]


async def test_a_chip_is_shared_from_the_first_share_to_the_last(driver: Driver) -> None:
    """A claim that has an NPU for itself changes nothing."""
    assert await driver.prepare("a", "d") == ""
    assert driver.flags.on == {2}
    assert driver.node.record("uid-a")["steps"] == ["share-flag"]
    assert driver.node.record("uid-d")["steps"] == []
    assert await driver.prepare("b", "c") == ""
    assert await driver.unprepare("a", "d") == ""
    assert await driver.anew().unprepare("c") == ""
    assert driver.flags.on == {2}

    assert await driver.unprepare("b") == ""

    assert driver.flags.on == set()
    assert driver.flags.changes == [(2, True), (2, False)]
    assert not noted(driver)


async def test_those_who_leave_together_take_the_flag_with_them(driver: Driver) -> None:
    """None of them waits for another."""
    await driver.prepare("a", "b", "c")
    assert await driver.unprepare("a", "b", "c") == ""
    assert driver.flags.on == set()


async def test_what_people_have_set_stays(driver: Driver) -> None:
    """Before a claim needed it."""
    driver.flags.folder.mkdir()
    (driver.flags.folder / "2").touch()
    await driver.prepare("a", "b")
    await driver.unprepare("a", "b")
    await driver.look()
    assert driver.flags.on == {2}
    assert driver.flags.changes == []


async def test_a_chip_in_use_is_not_shared_and_the_claim_is_told_who_uses_it(
    driver: Driver,
) -> None:
    """It is once they have gone."""
    driver.flags.used_by[2] = (4711, 4712)
    error = await driver.prepare("a")
    assert "flag of npu-2 changes only while nobody uses it" in error
    assert "in use by process 4711, process 4712" in error
    assert driver.node.cdi_uids() == set()
    driver.flags.used_by.clear()
    assert await driver.prepare("a") == ""
    assert driver.flags.on == {2}


async def test_a_flag_is_taken_back_when_those_who_linger_have_gone(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The unprepare tries on; one that gives up keeps the hold, and says why."""
    del autojump_clock
    quick_node.source.store(claim("a", result("npu-2", share_id="1")))
    driver = Driver(quick_node, FlagFiles(quick_node.root / "flags", quick_node.board), Patience())
    await driver.prepare("a")
    driver.flags.faults.extend([Busy(-8013, SET)] * 3)
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == set()

    await driver.prepare("a")
    driver.flags.used_by[2] = (7,)
    assert "in use by process 7" in await driver.unprepare("a")
    assert driver.node.record_uids() == {"uid-a"}
    driver.flags.used_by.clear()
    await driver.look()
    assert (driver.flags.on, driver.node.record_uids()) == (set(), set())


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (NotSupported(-8255, SET), "npu-2 cannot be shared by containers"),
        (NotPermitted(-8002, SET), "this driver may not change whether npu-2 is shared"),
        (Slow(-8006, SET), "the share flag of npu-2 cannot be changed"),
        (Busy(-8020, SET), "a container whose processes are not told"),
    ],
)
async def test_what_goes_wrong_is_said_in_words(
    driver: Driver, fault: DcmiError, words: str
) -> None:
    """For the pod's owner; nothing is left of the claim afterwards."""
    driver.flags.faults.append(fault)
    assert words in await driver.prepare("a")
    assert await driver.unprepare("a") == ""
    assert not noted(driver)


async def test_a_config_has_a_chip_shared(driver: Driver) -> None:
    """By the containers of one claim, which has the NPU for itself; also after a restart."""
    parameters = {
        "apiVersion": "npu.huawei.com/v1alpha1",
        "kind": "NpuConfig",
        "sharing": {"strategy": "Shared"},
    }
    shared = AllocationConfiguration(
        source="FromClaim", opaque=OpaqueConfiguration(driver=DRIVER, parameters=parameters)
    )
    driver.node.source.store(
        claim("s", result("npu-5"), config=[shared]), claim("other", result("npu-5"))
    )
    assert await driver.prepare("s") == ""
    assert driver.flags.on == {5}
    assert "held by claim default/s" in await driver.prepare("other")
    driver = driver.anew()
    assert await driver.prepare("s") == ""
    await driver.look()
    assert driver.flags.on == {5}
    assert await driver.unprepare("s") == ""
    assert driver.flags.on == set()


# --- modules -------------------------------------------------------------------------------------


async def test_of_a_module_both_dies_are_shared(driver: Driver) -> None:
    """And both are so no longer."""
    driver.node.board.set(a3(*map(die, range(4))))
    driver.node.source.store(claim("m", result("module-1", share_id="1")))
    assert await driver.prepare("m") == ""
    assert driver.flags.on == {2, 3}
    assert await driver.unprepare("m") == ""
    assert driver.flags.on == set()


async def test_a_die_whose_sister_somebody_has_waits_for_both(driver: Driver) -> None:
    """The flag is the card's: it is taken back when the other claim has gone too."""
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


# --- what a look puts right ----------------------------------------------------------------------


async def test_a_die_waits_for_a_sister_that_a_pod_has(driver: Driver) -> None:
    """The claim is told that it is a pod of a device plugin."""
    driver.node.board.set(a3(die(2), die(3), policy=MultiDiePolicy.INDEPENDENT))
    async with driver.ledger.exclusive():
        given = ResourceDevice(resource="huawei.com/Ascend910", chip=die(3))
        driver.ledger.put(given.entry(namespace="ml", pod="train"))
    driver.flags.used_by[3] = (4711,)
    assert "in use by process 4711, pod ml/train (" in await driver.prepare("a")


async def test_a_flag_that_a_broken_record_needs_stays(driver: Driver) -> None:
    """Its pod may run; a look takes the flag back once that has ended."""
    await driver.prepare("a", "b")
    (driver.node.records_folder / "uid-a.json").write_bytes(b"{")
    driver = driver.anew()
    assert await driver.unprepare("b") == ""
    await driver.look()
    assert driver.flags.on == {2}
    assert await driver.unprepare("a") == ""
    await driver.look()
    assert driver.flags.on == set()


async def test_a_flag_that_a_reboot_brought_back_goes(driver: Driver) -> None:
    """A node can be set to recover flags; its claims are prepared anew, or not."""
    await driver.prepare("a")
    driver.node.reboot()
    driver = driver.anew()
    await driver.look()
    assert driver.flags.on == set()
    await driver.prepare("a")
    assert driver.flags.on == {2}


async def test_a_flag_that_was_reset_is_set_again(driver: Driver) -> None:
    """When the Board says so, which is read now and then; nothing else is done about the claim."""
    await driver.prepare("a")
    (driver.flags.folder / "2").unlink()
    chips = [replace(chip, device_share=False) for chip in driver.node.board.value.chips]
    driver.node.board.set(replace(driver.node.board.value, chips=tuple(chips)))
    await driver.look()
    assert driver.flags.on == {2}
    changes = len(driver.flags.changes)
    await driver.look()
    assert len(driver.flags.changes) == changes


async def test_nothing_is_looked_at_before_the_chips_are_known(driver: Driver) -> None:
    """An unprepare does not wait for them: the flag is taken back later."""
    await driver.prepare("a")
    board = driver.node.board.value
    driver.node.board.set(EMPTY_BOARD)
    driver = driver.anew()
    await driver.look()
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    driver.node.board.set(board)
    await driver.look()
    assert driver.flags.on == set()
    assert not noted(driver)


@pytest.mark.parametrize("trouble", ["is gone", "does not answer"])
async def test_a_shared_chip_that_cannot_be_asked_keeps_no_claim(
    driver: Driver, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its flag is taken back once it is there again; nobody complains meanwhile."""
    await driver.prepare("a")
    board = driver.node.board.value
    if trouble == "is gone":
        gone = (replace(chip, gone=chip.name == "npu-2") for chip in board.chips)
        driver.node.board.set(replace(board, chips=tuple(gone)))
        await driver.look()
        assert not [one for one in caplog.records if one.levelname == "ERROR"]
    else:
        driver.flags.faults.append(Slow(-8006, SET))
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    driver.node.board.set(board)
    await driver.look()
    assert driver.flags.on == set()


@pytest.mark.parametrize("meanwhile", ["the claim ends", "a look", "the driver restarts"])
async def test_a_flag_is_taken_back_from_a_chip_that_has_told_its_die_id_since(
    driver: Driver, meanwhile: str
) -> None:
    """Chips are known by it where it is known, but one may answer without it at first."""
    await driver.prepare("a")
    board = driver.node.board.value
    told = (replace(chip, uuid=f"DIE-{chip.physical_id}") for chip in board.chips)
    driver.node.board.set(replace(board, chips=tuple(told)))
    if meanwhile == "the driver restarts":
        driver = driver.anew()
    if meanwhile != "the claim ends":
        await driver.look()
        path = driver.node.state_folder / "share-flags.json"
        assert "DIE-2" in path.read_text()
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == set()
    assert not noted(driver)


@pytest.mark.parametrize("kind", ["broken", *foreign.KINDS])
async def test_a_note_that_is_damaged_costs_no_claim(
    driver: Driver, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The flag stays as it is; what is foreign is set aside."""
    await driver.prepare("a")
    path = driver.node.state_folder / "share-flags.json"
    path.unlink()
    if kind == "broken":
        path.write_text("{")
    else:
        foreign.put(kind, path)
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    assert any("lost track of the share flags" in line for line in caplog.messages)


@pytest.mark.parametrize("is_prepare", [True, False])
async def test_a_call_can_be_cancelled_at_each_checkpoint(
    driver: Driver, is_prepare: bool, autojump_clock: MockClock
) -> None:
    """A flag without a claim, or a claim without its flag, is never left by the next call."""
    del autojump_clock
    step, goes_on = 1, True
    while goes_on:
        if not is_prepare:
            await driver.prepare("a")
        keep_busy(driver.ledger)
        act = driver.prepare if is_prepare else driver.unprepare
        goes_on = await cancelled_at(step, lambda act=act: act("a"))  # type: ignore[misc]
        driver = driver.anew()
        await driver.look()
        assert driver.flags.on == ({2} if driver.node.cdi_uids() else set())
        assert await driver.unprepare("a") == ""
        assert driver.flags.on == set()
        assert not noted(driver)
        step += 1
    assert step > 5


# --- names ---------------------------------------------------------------------------------------


async def test_each_share_has_a_name_of_its_own(driver: Driver) -> None:
    """A claim may have several of one NPU: containers get its nodes by each."""
    shares = [result("npu-2", f"r{n}", share_id=f"share-{n}") for n in (1, 2)]
    driver.node.source.store(claim("two", *shares))
    answers = await driver.claims.prepare([ref("two")])
    devices = answers["uid-two"].devices
    names = [f"npu.huawei.com/npu=uid-two-npu-2-share-{n}" for n in (1, 2)]
    assert [device.cdi_device_ids for device in devices] == [(name,) for name in names]
    assert [(device.requests, device.share_id) for device in devices] == [
        (("r1",), "share-1"),
        (("r2",), "share-2"),
    ]
    spec = driver.node.record("uid-two")["edits"]
    assert [device["name"] for device in spec["devices"]] == [
        name.rpartition("=")[2] for name in names
    ]
    assert spec["devices"][0]["containerEdits"] == spec["devices"][1]["containerEdits"]


async def test_a_flag_that_stays_although_its_reset_worked_is_reset_later(driver: Driver) -> None:
    """The library says that it did; the claim does not wait for it to be true."""
    await driver.prepare("a")
    driver.flags.idle = 1
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    assert noted(driver)
    await driver.look()
    assert driver.flags.on == set()
    assert not noted(driver)


async def test_one_answer_that_a_flag_is_not_set_leaves_no_chip_shared(driver: Driver) -> None:
    """What was read before says that it is: it is reset all the same."""
    await driver.prepare("a")
    (npu,) = [chip for chip in driver.node.board.value.chips if chip.name == "npu-2"]
    others = [chip for chip in driver.node.board.value.chips if chip.name != "npu-2"]
    chips = sorted((replace(npu, device_share=True), *others), key=lambda chip: chip.physical_id)
    driver.node.board.set(replace(driver.node.board.value, chips=tuple(chips)))
    path = driver.flags.folder / "2"
    path.rename(driver.flags.folder.parent / "unseen")

    class Late(FlagFiles):
        async def change(self, chip: Chip, *, is_set: bool) -> None:
            (self.folder.parent / "unseen").rename(self.folder / "2")
            await super().change(chip, is_set=is_set)

    flags = Late(driver.flags.folder, driver.node.board)
    await Driver(driver.node, flags).unprepare("a")
    assert flags.changes == [(2, False)]
    assert flags.on == set()
