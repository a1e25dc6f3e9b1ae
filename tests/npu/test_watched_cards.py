"""Which chips the watcher finds, and when it looks for them."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.npu.watching import BUSINESS, NEVER, Watching
from tests.waiting import until
from trio_npu_dra.errors import Busy
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.types import MultiDiePolicy
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.fault_memory import NodeFaults
from trio_npu_dra.npu.faults import CARD_DROPPED
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.listing import Listing
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, HealthState
from trio_npu_dra.npu.watcher import read_board
from trio_npu_dra.simulator import BoardControl, Severity, SimulatedBoard, load_profile


@pytest.fixture
def listing(worker: DcmiWorker, dcmi: Dcmi, host: Host) -> Listing:
    """Lists the board's cards, first ten seconds after a look that lacked something."""
    return Listing(worker, dcmi, host, 10.0)


async def test_the_board_is_real_once_the_watcher_has_started(watching: Watching) -> None:
    """Who waits for the start finds all NPUs."""
    await watching.start()
    assert len(watching.board.value.chips) == 8


async def test_a_card_taken_out_is_gone_until_it_is_back(
    watching: Watching, simulated: SimulatedBoard, caplog: pytest.LogCaptureFixture
) -> None:
    """The chip stays on the Board with a fault, is asked nothing, and is well once listed again."""
    caplog.set_level(logging.INFO)
    await watching.start()
    before = watching.board.value.by_name["npu-5"]
    node, bus = (
        simulated.dev_root / "davinci5",
        simulated.sysfs_root / "bus/pci/devices/0000:41:00.0",
    )
    for path in (node, bus):
        path.rename(simulated.root / path.name)
    board = await watching.until(lambda board: board.by_name["npu-5"].gone)
    chip = board.by_name["npu-5"]
    assert chip.uuid == before.uuid
    assert [fault.code for fault in chip.health.faults] == [CARD_DROPPED]
    assert not board.unanswered
    for path in (node, bus):
        (simulated.root / path.name).rename(path)
    board = await watching.until(lambda board: not board.by_name["npu-5"].gone)
    assert board.by_name["npu-5"] == before
    assert caplog.text.count("NPU is gone") == caplog.text.count("NPU is there again") == 1


async def test_a_chip_that_one_list_lacks_is_unmonitored_and_loses_no_pod(
    watching: Watching, simulated: SimulatedBoard
) -> None:
    """While its accelerator is on the bus, only a second list like it makes it gone."""
    await watching.start()
    (simulated.dev_root / "davinci5").unlink()
    (simulated.sysfs_root / "bus/pci/devices/0000:01:00.0").unlink()  # has the cards listed
    board = await watching.until(lambda board: board.by_name["npu-5"].unlisted)
    health = board.by_name["npu-5"].health
    assert (health.state, health.faults) == (HealthState.UNKNOWN, ())
    board = await watching.until(lambda board: board.by_name["npu-5"].gone)
    assert [fault.code for fault in board.by_name["npu-5"].health.faults] == [CARD_DROPPED]


async def test_a_chip_that_says_that_it_does_not_exist_is_gone_too(
    watching: Watching, control: BoardControl
) -> None:
    """It is listed still, and is asked again."""
    await watching.start()
    control.set_gone(5)
    await watching.until(lambda board: board.by_name["npu-5"].gone)
    control.restore(5)
    await watching.until(lambda board: not board.by_name["npu-5"].gone)


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
async def test_a_die_that_takes_its_sister_off_the_list_leaves_both_gone(
    watching: Watching, control: BoardControl, simulated: SimulatedBoard
) -> None:
    """Under the union policy the whole card is unlisted once the cards are listed anew."""
    await watching.start()
    control.set_gone(2)
    await watching.until(lambda board: board.by_name["npu-2"].gone)
    last = max((simulated.sysfs_root / "bus/pci/devices").iterdir())
    last.rename(simulated.root / "elsewhere")
    board = await watching.until(lambda board: board.by_name["npu-3"].gone)
    assert len(board.chips) == 16
    for name in ("npu-2", "npu-3"):
        assert [fault.code for fault in board.by_name[name].health.faults] == [CARD_DROPPED]


async def test_what_an_earlier_process_remembered_is_gone_or_silent_but_not_forgotten(
    watching: Watching, control: BoardControl, simulated: SimulatedBoard, board: Board
) -> None:
    """A card that was taken out while nobody watched, and one that does not answer now."""
    (simulated.dev_root / "davinci5").unlink()
    (simulated.sysfs_root / "bus/pci/devices/0000:41:00.0").unlink()
    control.set_silent(2)
    watching.known = Board(chips=(board.chips[2], board.chips[5]))
    await watching.start()
    seen = watching.board.value
    assert [chip.name for chip in seen.chips if chip.gone] == ["npu-5"]
    assert seen.by_name["npu-2"].uuid == board.chips[2].uuid
    assert len(seen.chips) == 8


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
async def test_a_policy_that_changes_is_noticed_without_a_new_list(
    watching: Watching, control: BoardControl
) -> None:
    """Neither the bus nor an event tells; a driver that does not answer changes nothing."""
    await watching.start()
    control.set_multi_die_policy(independent=True)
    control.set_return_code("dcmi_get_card_list", -8005)
    await watching.until(lambda board: board.multi_die_policy is MultiDiePolicy.INDEPENDENT)
    control.set_return_code("dcmi_get_multi_die_policy", -8006)
    control.add_fault(3, BUSINESS, Severity.MAJOR)
    await watching.until_state(3, HealthState.UNHEALTHY)
    assert watching.board.value.multi_die_policy is MultiDiePolicy.INDEPENDENT


async def test_a_share_that_changes_is_noticed_without_a_new_list(
    watching: Watching, control: BoardControl
) -> None:
    """Else the attribute would lie until a card comes or goes."""
    await watching.start()
    assert watching.board.value.by_name["npu-3"].device_share is False
    control.set_share(3, enabled=True)
    await watching.until(lambda board: board.by_name["npu-3"].device_share is True)


async def test_a_chip_that_others_split_is_said_once(
    watching: Watching, control: BoardControl, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever offers chips learns of the vNPUs, and that they are gone."""
    caplog.set_level(logging.INFO)
    control.create_vnpu(3, "vir05_1c_8g")
    control.create_vnpu(3, "vir10_3c_16g")
    await watching.start()
    assert watching.board.value.by_name["npu-3"].vnpus == (148, 149)
    control.create_vnpu(4, "vir05_1c_8g")
    await watching.until(lambda board: board.by_name["npu-4"].vnpus == (164,))
    control.destroy_vnpu(3, 148)
    control.destroy_vnpu(3, 149)
    await watching.until(lambda board: not board.by_name["npu-3"].vnpus)
    said = [
        (record.__dict__["npu"], record.__dict__.get("why", "is again"))
        for record in caplog.records
        if "offered" in record.getMessage()
    ]
    assert said == [
        ("npu-3", "it is split into vNPUs 148, 149"),
        ("npu-4", "it is split into vNPUs 164"),
        ("npu-3", "is again"),
    ]


async def test_a_card_that_the_driver_lists_late_is_found(
    watching: Watching, simulated: SimulatedBoard, caplog: pytest.LogCaptureFixture
) -> None:
    """The PCI bus shows a card before its driver does: nothing changes there when it is ready."""
    node = simulated.dev_root / "davinci5"
    node.rename(node.with_name("later"))
    await watching.start()
    assert len(watching.board.value.chips) == 7
    assert caplog.text.count("does not list all accelerators") == 1
    node.with_name("later").rename(node)
    await watching.until(lambda board: len(board.chips) == 8)


async def test_the_bus_is_not_read_for_each_event(
    worker: DcmiWorker, dcmi: Dcmi, simulated: SimulatedBoard
) -> None:
    """In a storm that would be most of the work."""
    reads = []

    class Counting(Host):
        def accelerators(self) -> tuple[str, ...]:
            reads.append(1)
            return super().accelerators()

    host = Counting(
        host_root=simulated.root, dev_root=simulated.dev_root, sysfs_root=simulated.sysfs_root
    )
    listing = Listing(worker, dcmi, host, NEVER)
    board = await listing.read(EMPTY_BOARD)
    assert board is not None
    reads.clear()
    assert not any(listing.is_due(board) for _ in range(100))
    assert len(reads) == 1


async def pauses(
    listing: Listing, clock: MockClock, times: int, known: Board = EMPTY_BOARD
) -> list[float]:
    """Seconds between listings of a board that lacks something, at most so many."""
    found: list[float] = []
    board = await listing.read(known)
    while len(found) < times and board is not None:
        pause = listing.retry_at - trio.current_time()
        clock.jump(pause - 1)
        assert not listing.is_due(board)
        clock.jump(2)
        if not listing.is_due(board):
            break
        found.append(round(pause))
        board = await listing.read(board)
    return found


async def test_a_card_that_the_driver_never_lists_is_given_up(
    listing: Listing, simulated: SimulatedBoard, mock_clock: MockClock
) -> None:
    """It may be no NPU: it is asked for ever more rarely, and then no more."""
    (simulated.dev_root / "davinci5").unlink()
    assert await pauses(listing, mock_clock, 20) == [10, 20, 40, 80]


async def test_a_listed_card_that_stays_silent_is_never_given_up(
    listing: Listing, control: BoardControl, mock_clock: MockClock
) -> None:
    """It is an NPU: every five minutes in the end."""
    control.set_silent(5)
    assert await pauses(listing, mock_clock, 8) == [10, 20, 40, 80, 160, 300, 300, 300]


async def test_a_known_card_that_is_on_the_bus_and_not_listed_is_never_given_up(
    listing: Listing, simulated: SimulatedBoard, mock_clock: MockClock
) -> None:
    """It was an NPU, and may be one again."""
    board = await listing.read(EMPTY_BOARD)
    assert board is not None
    (simulated.dev_root / "davinci5").unlink()
    assert await pauses(listing, mock_clock, 8, board) == [10, 20, 40, 80, 160, 300, 300, 300]


async def test_a_card_that_was_listed_before_is_looked_for_soon(
    listing: Listing, control: BoardControl, simulated: SimulatedBoard, mock_clock: MockClock
) -> None:
    """However rarely cards are listed by now: pods wait for what it is."""
    known = await listing.read(EMPTY_BOARD)
    assert known is not None
    (simulated.dev_root / "davinci3").unlink()
    control.set_return_code("dcmi_get_card_list", -8005)
    for _ in range(4):
        await listing.read(known)
    control.set_return_code("dcmi_get_card_list", 0)
    assert await pauses(listing, mock_clock, 2, known) == [10, 300]


async def test_two_lists_that_lack_a_card_are_apart_whatever_the_host_shows(
    listing: Listing, simulated: SimulatedBoard, mock_clock: MockClock
) -> None:
    """An Ascend driver that starts makes nodes one by one: a list for each would be too early."""
    known = await listing.read(EMPTY_BOARD)
    assert known is not None
    (simulated.dev_root / "davinci3").unlink()
    board = await listing.read(known)
    assert board is not None
    (simulated.dev_root / "davinci5").unlink()
    mock_clock.jump(9)
    assert not listing.is_due(board)
    mock_clock.jump(2)
    assert listing.is_due(board)


async def test_after_all_was_well_pauses_are_short_again(
    listing: Listing, control: BoardControl, mock_clock: MockClock
) -> None:
    """Also where a card is silent that was known, and so is on the Board all the time."""
    board = await listing.read(EMPTY_BOARD)
    for _ in range(2):
        assert board is not None
        control.set_silent(5)
        assert await pauses(listing, mock_clock, 3, board) == [10, 20, 40]
        control.restore(5)
        board = await listing.read(board)


async def test_a_known_card_that_falls_silent_stays(
    listing: Listing, control: BoardControl
) -> None:
    """The list is new, what is known of the card is not forgotten."""
    board = await listing.read(EMPTY_BOARD)
    assert board is not None
    control.set_silent(5)
    fresh = await listing.read(board)
    assert fresh is not None
    assert fresh.chips == board.chips
    assert fresh.unanswered


async def test_chips_that_tell_no_address_are_not_missing(
    listing: Listing, control: BoardControl, mock_clock: MockClock
) -> None:
    """Nobody knows then which of them are on the bus."""
    control.set_return_code("dcmi_get_device_pcie_info_v2", -8255)
    assert await pauses(listing, mock_clock, 3) == []


async def test_a_node_without_a_pci_bus_has_its_npus(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, tmp_path: Path
) -> None:
    """A 310B is one; nothing on the bus is no news there."""
    listing = Listing(worker, dcmi, replace(host, sysfs_root=tmp_path / "none"), 10.0)
    board = await listing.read(EMPTY_BOARD)
    assert board is not None
    assert len(board.chips) == 8
    assert not listing.is_due(board)


async def test_what_cannot_be_listed_is_said_once(
    listing: Listing,
    simulated: SimulatedBoard,
    control: BoardControl,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each failure, and each accelerator that the driver does not list; what is well, never."""

    async def lines(known: Board = EMPTY_BOARD) -> tuple[int, Board]:
        caplog.clear()
        board = await listing.read(known)
        return len(caplog.records), board or known

    for code, count in ((-8012, 1), (-8012, 0), (-8005, 1)):
        control.set_return_code("dcmi_init", code)
        assert (await lines())[0] == count
    control.release("dcmi_init")
    node = simulated.dev_root / "davinci5"
    node.rename(node.with_name("later"))
    count, board = await lines()
    assert (count, len(board.chips)) == (1, 7)
    assert (await lines(board))[0] == 0
    node.with_name("later").rename(node)
    count, board = await lines(board)
    assert (count, len(board.chips)) == (0, 8)


async def test_a_silent_card_is_looked_at_again(watching: Watching, control: BoardControl) -> None:
    """A card that boots while the driver starts is published as soon as it answers."""
    control.set_silent(5)
    await watching.start()
    assert len(watching.board.value.chips) == 7
    control.restore(5)
    fresh = await watching.until(lambda board: len(board.chips) == 8)
    assert fresh.unanswered == ()


async def test_the_watcher_waits_for_a_library_that_cannot_start(
    watching: Watching,
    control: BoardControl,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While init fails nothing is set, and it is said once; then the watcher starts."""
    control.set_return_code("dcmi_init", -8012)

    async def heal() -> None:
        with trio.fail_after(5):
            await until(lambda: "NPUs cannot be listed" in caplog.text)
        assert watching.board.value is EMPTY_BOARD
        control.release("dcmi_init")

    nursery.start_soon(heal)
    await watching.start()
    assert len(watching.board.value.chips) == 8
    assert caplog.text.count("NPUs cannot be listed") == 1


async def test_a_listing_that_fails_later_costs_nothing(
    watching: Watching,
    simulated: SimulatedBoard,
    control: BoardControl,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was known stays, faults are seen, and the cards are listed when that works again."""
    await watching.start()
    control.set_return_code("dcmi_init", -8012)
    (simulated.dev_root / "davinci5").unlink()
    (simulated.sysfs_root / "bus/pci/devices/0000:41:00.0").unlink()
    with trio.fail_after(5):
        while "NPUs cannot be listed" not in caplog.text:  # noqa: ASYNC110 - a log line
            await trio.sleep(0.001)
    control.add_fault(3, BUSINESS, Severity.MAJOR)
    await watching.until_state(3, HealthState.UNHEALTHY)
    assert len(watching.board.value.chips) == 8
    control.release("dcmi_init")
    await watching.until(lambda board: board.by_name["npu-5"].gone)


async def test_a_single_look_subscribes_to_nothing(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, control: BoardControl, watching: Watching
) -> None:
    """`read_board` gives NPUs with their health, and leaves the one subscription to others."""
    control.add_fault(3, BUSINESS, Severity.MAJOR)
    board = await read_board(worker, dcmi, host, NodeFaults(None))
    assert [npu.health.state is HealthState.UNHEALTHY for npu in board.chips] == [
        number == 3 for number in range(8)
    ]
    await watching.start()
    assert watching.status.value.subscribed


async def test_facts_that_were_not_answered_are_asked_for_again(
    watching: Watching, control: BoardControl
) -> None:
    """Soon, and without anything else that changes."""
    for function in ("dcmi_get_device_hbm_info", "dcmi_get_device_die_v2"):
        control.set_return_code(function, -8012, 2)
    await watching.start()
    chip = watching.board.value.by_name["npu-2"]
    assert (chip.memory_bytes, chip.uuid) == (None, None)
    for function in ("dcmi_get_device_hbm_info", "dcmi_get_device_die_v2"):
        control.release(function, 2)
    board = await watching.until(lambda board: not board.unanswered)
    chip = board.by_name["npu-2"]
    assert chip.memory_bytes is not None
    assert chip.uuid is not None


async def test_a_share_flag_that_changes_is_noticed_without_a_new_list(
    watching: Watching, control: BoardControl
) -> None:
    """As the multi-die policy is; a chip that does not answer keeps its flag."""
    await watching.start()
    control.set_return_code("dcmi_get_card_list", -8005)
    control.set_share(3, enabled=True)
    await watching.until(lambda board: board.by_name["npu-3"].device_share is True)
    control.set_return_code("dcmi_get_device_share_enable", -8006, 3)
    control.set_share(4, enabled=True)
    board = await watching.until(lambda board: board.by_name["npu-4"].device_share is True)
    assert board.by_name["npu-3"].device_share is True


@pytest.mark.parametrize("code", [-8008, -8255])
async def test_a_library_without_a_chip_is_an_answer(
    watching: Watching, control: BoardControl, simulated: SimulatedBoard, code: int
) -> None:
    """The node has no NPU, or none of this kind: the watcher starts, with nothing left to ask."""
    control.set_return_code("dcmi_init", code)
    shutil.rmtree(simulated.sysfs_root / "bus/pci/devices")
    (simulated.dev_root / "davinci_manager").unlink()
    await watching.start()
    assert watching.board.value == EMPTY_BOARD
    assert watching.status.value.answered


async def test_accelerators_that_have_no_chip_yet_are_waited_for(
    watching: Watching, control: BoardControl
) -> None:
    """They are on the bus, and the Ascend driver is starting."""
    control.set_return_code("dcmi_init", -8008)
    await watching.start()
    board = watching.board.value
    assert board.chips == ()
    assert board.unanswered == (
        "the Ascend driver has no chip: dcmi_init returned -8008 (the device does not exist)",
    )
    assert len(board.unlisted_accelerators) == 8
    control.release("dcmi_init")
    await watching.until(lambda board: len(board.chips) == 8 and not board.gaps)


async def test_known_chips_without_a_driver_stay_while_they_are_on_the_bus(
    watching: Watching, control: BoardControl, simulated: SimulatedBoard, board: Board
) -> None:
    """Who holds them keeps them."""
    control.set_return_code("dcmi_init", -8008)
    (simulated.sysfs_root / "bus/pci/devices/0000:41:00.0").unlink()
    watching.known = Board(chips=(board.chips[2], board.chips[5]))
    await watching.start()
    assert [chip.gone for chip in watching.board.value.chips] == [False, True]


async def test_missing_rights_are_said_in_one_line(
    listing: Listing, control: BoardControl, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing is known of the node."""
    control.set_return_code("dcmi_init", -8002)
    assert await listing.read(EMPTY_BOARD) is None
    assert await listing.read(EMPTY_BOARD) is None
    (record,) = caplog.records
    assert record.__dict__["error"] == (
        "dcmi_init returned -8002 "
        "(not permitted here: needs root on the host or a privileged container)"
    )


async def test_a_new_card_beside_a_hung_call_is_told(
    listing: Listing,
    worker: DcmiWorker,
    dcmi: Dcmi,
    simulated: SimulatedBoard,
    hang: Callable[[str, int], None],
) -> None:
    """The library cannot list it while any call is out; whoever looks at the Board learns why."""
    paths = (
        simulated.sysfs_root / "bus/pci/devices/0000:41:00.0",
        simulated.dev_root / "davinci5",
    )
    for path in paths:
        path.rename(simulated.root / path.name)
    board = await listing.read(EMPTY_BOARD)
    assert board is not None
    hang("dcmi_get_device_health", 2)
    ref = board.chips[2].ref
    with pytest.raises(Busy):
        await worker.call(dcmi.health, ref, device=ref, deadline_seconds=0.02)
    for path in paths:
        (simulated.root / path.name).rename(path)
    assert listing.is_due(board)
    told = await listing.read(board)
    assert told is not None
    assert told.chips == board.chips
    assert told.gaps[0].endswith("not returned: dcmi_get_device_health of card 2 device 0")
    assert told.gaps[1:] == ("accelerator 0000:41:00.0 is not listed",)
    assert await listing.read(told) is None


async def test_a_driver_that_starts_anew_is_asked_for_its_cards(
    watching: Watching, simulated: SimulatedBoard
) -> None:
    """It makes its device nodes anew; nothing changes on the bus. No chip is gone meanwhile."""
    await watching.start()
    before = watching.board.value
    nodes = list(simulated.dev_root.glob("davinci[0-9]"))
    for node in nodes:
        node.rename(simulated.root / node.name)
    board = await watching.until(lambda board: bool(board.unanswered))
    assert "the cards cannot be listed" in board.unanswered[0]
    assert not any(chip.gone for chip in board.chips)
    for node in nodes:
        node.symlink_to("/dev/null")
    board = await watching.until(lambda board: not board.gaps)
    assert board.chips == before.chips
