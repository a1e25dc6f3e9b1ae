"""When cards are listed, how soon again, and what a list that failed says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.ascend.conftest import Card
from tests.ascend.watching import NEVER
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import Busy
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.listing import Listing
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard


@pytest.fixture
def listing(worker: DcmiWorker, dcmi: Dcmi, host: Host) -> Listing:
    """Lists the board's cards, first ten seconds after a look that lacked something."""
    return Listing(worker, dcmi, host, 10.0)


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
    listing: Listing, card: Card, mock_clock: MockClock
) -> None:
    """It may be no NPU: it is asked for ever more rarely, and then no more."""
    card.unlist()
    assert await pauses(listing, mock_clock, 20) == [10, 20, 40, 80]


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_card_that_is_known_as_an_npu_is_never_given_up(
    listing: Listing, control: BoardControl, card: Card, mock_clock: MockClock, *, is_listed: bool
) -> None:
    """Every five minutes in the end: it is listed and silent, or on the bus and was listed."""
    board = await listing.read(EMPTY_BOARD)
    assert board is not None
    assert not listing.is_due(board)
    if is_listed:
        control.set_silent(5)
    else:
        card.unlist()
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


async def test_pauses_are_short_again_after_a_good_list(
    listing: Listing, control: BoardControl, mock_clock: MockClock
) -> None:
    """Also where a card is silent that was known, and so is on the Board all the time."""
    board = await listing.read(EMPTY_BOARD)
    for _ in range(2):
        assert board is not None
        assert not listing.is_due(board)
        control.set_silent(5)
        assert await pauses(listing, mock_clock, 3, board) == [10, 20, 40]
        control.restore(5)
        board = await listing.read(board)


async def test_chips_that_tell_no_address_are_not_missing(
    listing: Listing, control: BoardControl, mock_clock: MockClock
) -> None:
    """It is unknown which of them are on the bus."""
    control.set_return_code("dcmi_get_device_pcie_info_v2", -8255)
    assert await pauses(listing, mock_clock, 3) == []


async def test_a_node_without_a_pci_bus_has_its_npus(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, tmp_path: Path
) -> None:
    """A 310B is one; that its bus lists nothing means nothing."""
    listing = Listing(worker, dcmi, replace(host, sysfs_root=tmp_path / "none"), 10.0)
    board = await listing.read(EMPTY_BOARD)
    assert board is not None
    assert len(board.chips) == 8
    assert not listing.is_due(board)


async def test_each_problem_of_a_listing_is_logged_once(
    listing: Listing, card: Card, control: BoardControl, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failure, and each accelerator that the driver does not list; a good list, never."""

    async def lines(known: Board = EMPTY_BOARD) -> tuple[int, Board]:
        caplog.clear()
        board = await listing.read(known)
        return len(caplog.records), board or known

    for code, count in ((-8012, 1), (-8012, 0), (-8005, 1)):
        control.set_return_code("dcmi_init", code)
        assert (await lines())[0] == count
    control.release("dcmi_init")
    card.unlist()
    count, board = await lines()
    assert (count, len(board.chips)) == (1, 7)
    assert (await lines(board))[0] == 0
    card.put_back()
    count, board = await lines(board)
    assert (count, len(board.chips)) == (0, 8)


# --- beside a call that hangs ---------------------------------------------------------------------


@pytest.fixture
def beside_hung(
    listing: Listing, worker: DcmiWorker, dcmi: Dcmi, hang: Callable[[str, int], None]
) -> Callable[[str, int], Awaitable[Board]]:
    """Reads the Board, and has a call about a chip, or about its network, hang and written off."""

    async def read(function: str, number: int) -> Board:
        board = await listing.read(EMPTY_BOARD)
        assert board is not None
        hang(function, number)
        ref = board.chips[number].ref
        is_network = function == "dcmi_get_device_network_health"
        call = dcmi.network_health if is_network else dcmi.health
        device = ("network", ref) if is_network else ref
        with pytest.raises(Busy):
            await worker.call(call, ref, device=device, deadline_seconds=0.02)
        return board

    return read


async def test_beside_a_hung_port_cards_come_and_go(
    listing: Listing, card: Card, beside_hung: Callable[[str, int], Awaitable[Board]]
) -> None:
    """That of a dead card above all: the library does not ask ports when it lists cards."""
    board = await beside_hung("dcmi_get_device_network_health", 2)
    card.pull()
    pulled = await listing.read(board)
    assert pulled is not None
    assert pulled.chips[5].gone
    card.put_back()
    assert await listing.read(pulled) == board


async def test_a_call_that_hangs_with_a_pulled_card_does_not_keep_it_on_the_board(
    listing: Listing, card: Card, beside_hung: Callable[[str, int], Awaitable[Board]]
) -> None:
    """The Ascend driver has no such chip any more, so that the library does not ask it."""
    board = await beside_hung("dcmi_get_device_health", 5)
    card.pull()
    pulled = await listing.read(board)
    assert pulled is not None
    assert [chip.gone for chip in pulled.chips] == [number == 5 for number in range(8)]
    assert pulled.gaps == ()


async def test_beside_a_call_that_hangs_with_a_chip_on_the_bus_pulled_cards_leave(
    listing: Listing, card: Card, beside_hung: Callable[[str, int], Awaitable[Board]]
) -> None:
    """Cards cannot be listed then; the bus must lack them twice."""
    board = await beside_hung("dcmi_get_device_health", 2)
    for is_pulled in (True, False, True):
        (card.pull if is_pulled else card.put_back)()
        known, board = board, await listing.read(board) or board
        assert board.chips == known.chips
    named = await listing.read(board)
    assert named is not None
    assert [chip.gone for chip in named.chips] == [number == 5 for number in range(8)]
    assert "not returned: dcmi_get_device_health of card 2 device 0" in named.gaps[0]


async def test_a_new_card_beside_a_hung_call_is_named(
    listing: Listing, card: Card, beside_hung: Callable[[str, int], Awaitable[Board]]
) -> None:
    """The library cannot list it while any call is out; the Board says why."""
    card.pull()
    board = await beside_hung("dcmi_get_device_health", 2)
    card.put_back()
    assert listing.is_due(board)
    named = await listing.read(board)
    assert named is not None
    assert named.chips == board.chips
    assert named.gaps[0].endswith("not returned: dcmi_get_device_health of card 2 device 0")
    assert named.gaps[1:] == ("accelerator 0000:41:00.0 is not listed",)
    assert await listing.read(named) is None
