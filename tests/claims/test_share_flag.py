"""Chips are shared while a claim needs that, and no longer; flags that people set stay."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

import pytest
from trio.testing import MockClock

from dev.rig.boards import a3, die
from tests import foreign
from tests.claims.flags import FlagFiles
from tests.claims.instance import Instance
from tests.claims.node import AT_ONCE, NodeOnDisk, claim, config, ref, result
from tests.claims.restarted import errors_in
from tests.claims.test_cancelled import cancelled_at, keep_busy
from tests.holds.entries import configured, entry, of_partition
from tests.synced import syncs
from trio_npu_dra.agent.claims import step_locks
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.claims.share_flag import ShareFlagStep
from trio_npu_dra.agent.config.effective import EffectiveConfig
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.agent.holds.entry import EntryState
from trio_npu_dra.ascend.dcmi.errors import Busy, DcmiError, NotPermitted, NotSupported, Slow
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.model import EMPTY_BOARD, Chip
from trio_npu_dra.kit.base.errors import DevicesUnknown
from trio_npu_dra.kit.base.observable import Observable

SET = "dcmi_set_device_share_enable"
SHARED = EffectiveConfig(shared=True)


class Driver(Instance):
    """One instance that shares chips."""

    def __init__(self, node: NodeOnDisk, flags: FlagFiles, patience: Patience = AT_ONCE) -> None:
        self.flags = flags
        self.ours: Observable[AbstractSet[str]] = Observable(frozenset())
        super().__init__(
            node,
            lambda ledger, cdi: [ShareFlagStep(ledger, cdi, node.board, flags, self.ours)],
            patience=patience,
        )

    def restarted(self) -> Driver:
        """The next instance."""
        return Driver(self.node, self.flags)

    def change_chips(self, **changes: object) -> None:
        """Have the Board say something else of all chips."""
        board = self.node.board.value
        chips = tuple(replace(chip, **changes) for chip in board.chips)  # type: ignore[arg-type]
        self.node.board.set(replace(board, chips=chips))


@pytest.fixture
def driver(quick_node: NodeOnDisk) -> Driver:
    """Claims a, b and c have a share of NPU 2 each, d has all of NPU 3."""
    shares = [claim(name, result("npu-2", share_id=f"share-{name}")) for name in "abc"]
    quick_node.source.store(*shares, claim("d", result("npu-3")))
    return Driver(quick_node, FlagFiles(quick_node.root / "flags", quick_node.board))


def file_of(driver: Driver) -> Path:
    """The file with the flags that the driver has set."""
    return driver.node.state_folder / "share-flags.json"


def noted(driver: Driver) -> bool:
    """Whether the driver has recorded that it set a flag."""
    return file_of(driver).exists()


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
    assert await driver.restarted().unprepare("c") == ""
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
    assert "share-flags.json" in synced[0]
    assert "share-flags.json" not in synced[-1]


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
    """An observer needs no rights, and a vNPU is opened by itself."""
    step = ShareFlagStep(driver.ledger, driver.cdi, driver.node.board, driver.flags)
    own = configured("uid-a", SHARED)
    assert step.is_needed(own)
    observed = (replace(given, admin_access=True) for given in own.allocation)
    assert not step.is_needed(replace(own, allocation=tuple(observed)))
    partition = of_partition("uid-a")
    devices = tuple(replace(device, config=SHARED) for device in partition.devices)
    assert not step.is_needed(replace(partition, devices=devices))


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_flag_is_not_set_before_the_chips_are_known(driver: Driver, is_known: bool) -> None:
    """Nor where the library never came up."""
    flags = None if is_known else driver.flags
    if not is_known:
        driver.node.board.set(EMPTY_BOARD)
    step = ShareFlagStep(driver.ledger, driver.cdi, driver.node.board, flags)
    with pytest.raises(DevicesUnknown):
        await step.do(entry("uid-a"))


async def test_instances_take_turns_at_flags(driver: Driver, autojump_clock: MockClock) -> None:
    """A call that waits for too long is refused."""
    del autojump_clock
    driver.node.state_folder.mkdir()
    async with step_locks.hold(driver.node.state_folder / "share-flags.lock"):
        assert "share-flags.lock" in await driver.prepare("a")
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


# --- looks ---------------------------------------------------------------------------------------


async def test_a_flag_that_a_broken_record_needs_stays(driver: Driver) -> None:
    """Its pod may run; a look clears the flag once that has ended."""
    await driver.prepare("a", "b", "d")
    for uid in ("uid-a", "uid-d"):
        (driver.node.records_folder / f"{uid}.json").write_bytes(b"{")
    driver = driver.restarted()
    assert await driver.unprepare("b") == ""
    await driver.look()
    assert driver.flags.on == {2}
    assert await driver.unprepare("a") == ""
    await driver.look()
    assert driver.flags.on == set(), "the other broken record is of another chip"


@pytest.mark.parametrize("recovers", [True, False])
async def test_a_flag_that_a_reboot_brought_back_is_cleared(driver: Driver, recovers: bool) -> None:
    """A node can be set to recover flags; its claims are prepared again, or not."""
    await driver.prepare("a")
    driver.node.reboot()
    if not recovers:
        (driver.flags.folder / "2").unlink()
    driver = driver.restarted()
    await driver.look()
    assert driver.flags.on == set()
    assert driver.flags.changes[1:] == [(2, False)] * recovers
    await driver.prepare("a")
    assert driver.flags.on == {2}


async def test_a_flag_that_was_reset_is_set_again(driver: Driver) -> None:
    """When the Board says so; nothing else is done about the claim, nor anything twice."""
    await driver.prepare("a")
    (driver.flags.folder / "2").unlink()
    file_of(driver).unlink()
    await driver.look()
    assert driver.flags.on == set()
    driver.change_chips(device_share=False)
    await driver.look()
    assert driver.flags.on == {2}
    changes, written = len(driver.flags.changes), file_of(driver).stat().st_ino
    await driver.look()
    assert len(driver.flags.changes) == changes
    assert file_of(driver).stat().st_ino == written


async def test_a_look_does_all_that_it_can(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """A card that fails keeps no other; the log names it. A killed writer's file is removed."""
    driver.node.source.store(claim("e", result("npu-4", share_id="1")))
    left = driver.node.state_folder / ".share-flags.json.0123abcd"
    await driver.prepare("a", "e")
    left.touch()
    driver.node.reboot()
    driver = driver.restarted()
    driver.flags.faults.append(Slow(-8006, SET))
    await driver.look()
    assert driver.flags.on == {2}
    assert not left.exists()
    assert len(errors_in(caplog)) == 1
    assert "the share flag of npu-2 cannot be changed" in errors_in(caplog)[0]


async def test_an_unprepare_does_not_wait_until_the_chips_are_known(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """A look clears the flag later."""
    await driver.prepare("a")
    board = driver.node.board.value
    driver.node.board.set(EMPTY_BOARD)
    driver = driver.restarted()
    await driver.look()
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    assert errors_in(caplog) == []
    driver.node.board.set(board)
    await driver.look()
    assert driver.flags.on == set()
    assert not noted(driver)


@pytest.mark.parametrize("trouble", ["is gone", "does not answer"])
async def test_a_shared_chip_that_does_not_answer_keeps_no_claim(
    driver: Driver, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its flag is cleared once it is there again; the log has no error meanwhile."""
    await driver.prepare("a")
    board = driver.node.board.value
    if trouble == "is gone":
        (gone,) = (chip for chip in board.chips if chip.name == "npu-2")
        gone = replace(gone, gone=True, device_share=False)
        driver.node.board.set(replace(board, chips=(gone,)))
        await driver.look()
        assert errors_in(caplog) == []
    else:
        driver.flags.faults.append(Slow(-8006, SET))
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    driver.node.board.set(board)
    await driver.look()
    assert driver.flags.on == set()


@pytest.mark.parametrize("meanwhile", ["the claim ends", "a look", "the driver restarts"])
async def test_a_flag_is_cleared_on_a_chip_whose_die_id_is_known_since(
    driver: Driver, meanwhile: str
) -> None:
    """Chips are recorded by die id, but one may answer without it at first."""
    await driver.prepare("a")
    board = driver.node.board.value
    known = (replace(chip, uuid=f"DIE-{chip.physical_id}") for chip in board.chips)
    driver.node.board.set(replace(board, chips=tuple(known)))
    if meanwhile == "the driver restarts":
        driver = driver.restarted()
    if meanwhile != "the claim ends":
        await driver.look()
        assert "DIE-2" in file_of(driver).read_text()
        assert driver.ours.value == {"DIE-2"}
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == set()
    assert not noted(driver)


@pytest.mark.parametrize("kind", ["broken", *foreign.KINDS])
async def test_a_damaged_file_costs_no_claim(driver: Driver, kind: str) -> None:
    """The flag stays as it is; the file is set aside."""
    await driver.prepare("a")
    path = file_of(driver)
    path.unlink()
    if kind == "broken":
        path.write_text("{")
    else:
        foreign.put(kind, path)
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    assert len(foreign.set_aside(path)) == 1
    assert driver.ours.value == frozenset()


@pytest.mark.parametrize("is_prepare", [True, False])
async def test_a_call_can_be_cancelled_at_each_checkpoint(
    driver: Driver, is_prepare: bool, autojump_clock: MockClock
) -> None:
    """The next call leaves no flag without a claim, and no claim without its flag."""
    del autojump_clock
    step, goes_on = 1, True
    while goes_on:
        if not is_prepare:
            await driver.prepare("a")
        keep_busy(driver.ledger)
        act = driver.prepare if is_prepare else driver.unprepare
        goes_on = await cancelled_at(step, lambda act=act: act("a"))  # type: ignore[misc]
        driver = driver.restarted()
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


# --- answers that are not true -------------------------------------------------------------------


async def test_a_flag_that_stays_although_its_reset_worked_is_cleared_later(
    driver: Driver,
) -> None:
    """The claim does not wait for it."""
    await driver.prepare("a")
    driver.flags.idle = 1
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    assert noted(driver)
    await driver.look()
    assert driver.flags.on == set()
    assert not noted(driver)


async def test_a_chip_that_has_lost_its_flag_altogether_ends_its_claim(driver: Driver) -> None:
    """Another version of the Ascend driver may not know the call."""

    class Flagless(FlagFiles):
        async def is_set(self, chip: Chip) -> bool:
            del chip
            raise NotSupported(-8255, "dcmi_get_device_share_enable")

    await driver.prepare("a")
    flags = Flagless(driver.flags.folder, driver.node.board)
    assert await Driver(driver.node, flags).unprepare("a") == ""
    assert flags.changes == []
    assert not noted(driver)


async def test_one_answer_that_a_flag_is_not_set_leaves_no_chip_shared(driver: Driver) -> None:
    """The Board says that it is, so it is cleared all the same."""
    await driver.prepare("a")
    driver.change_chips(device_share=True)
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
