"""The share flag of chips, through the simulated library."""

from __future__ import annotations

import pytest

from tests.ascend.watching import BUSINESS, NEVER, Watching
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import Busy, NotSupported
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.share_flag import ShareFlags, cards, is_in_use
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.lab.simulator import BoardControl, Severity, load_profile


def chip(board: Board, number: int) -> Chip:
    """The chip with a physical id."""
    return board.by_name[f"npu-{number}"]


@pytest.fixture
async def board(watching: Watching) -> Board:
    """The board, which is watched by events alone."""
    watching.interval = NEVER
    await watching.start()
    return watching.board.value


@pytest.fixture
def flags(worker: DcmiWorker, dcmi: Dcmi, watching: Watching) -> ShareFlags:
    """Its flags."""
    return ShareFlags(worker, dcmi, watching.division)


async def on(flags: ShareFlags, board: Board) -> set[int]:
    """The chips that several containers may use."""
    return {each.physical_id for each in board.chips if await flags.is_set(each)}


async def test_a_chip_is_shared_and_is_so_no_longer(flags: ShareFlags, board: Board) -> None:
    """No other chip is."""
    await flags.change(chip(board, 3), is_set=True)
    assert await on(flags, board) == {3}
    await flags.change(chip(board, 3), is_set=False)
    assert await on(flags, board) == set()


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
async def test_the_dies_of_a_card_are_shared_together(
    flags: ShareFlags, board: Board, watching: Watching
) -> None:
    """Whichever of them is named."""
    (card,) = cards(board, ["/dev/davinci3"])
    assert [die.physical_id for die in card] == [2, 3]
    assert len(cards(board, ["/dev/davinci2", "/dev/davinci3", "/dev/davinci4"])) == 2
    await flags.change(chip(board, 3), is_set=True)
    assert await on(flags, board) == {2, 3}
    known = [die.physical_id for die in watching.board.value.chips if die.device_share]
    assert known == [2, 3], "the Board has the change"


async def test_what_the_board_knows_of_a_flag_outlasts_the_next_look(
    flags: ShareFlags, board: Board, watching: Watching, control: BoardControl
) -> None:
    """At another chip, which finds out nothing of flags."""
    await flags.change(chip(board, 3), is_set=True)
    control.add_fault(2, BUSINESS, Severity.MAJOR)
    await watching.until_state(2, HealthState.UNHEALTHY)
    assert watching.board.value.by_name["npu-3"].device_share is True
    await flags.change(chip(board, 3), is_set=False)
    control.clear_fault(2, BUSINESS)
    await watching.until_state(2, HealthState.HEALTHY)
    assert watching.board.value.by_name["npu-3"].device_share is False


async def test_a_flag_of_a_chip_in_use_does_not_change(
    flags: ShareFlags, board: Board, control: BoardControl
) -> None:
    """Its processes are known."""
    control.set_processes(3, [(4711, 1 << 20)])
    with pytest.raises(Busy) as caught:
        await flags.change(chip(board, 3), is_set=True)
    assert is_in_use(caught.value)
    assert await flags.processes(chip(board, 3)) == (4711,)
    assert await on(flags, board) == set()


async def test_a_chip_that_cannot_be_shared_says_so(
    flags: ShareFlags, board: Board, control: BoardControl
) -> None:
    """It is not one that is in use."""
    control.set_return_code("dcmi_get_device_share_enable", -8255, 3)
    with pytest.raises(NotSupported) as caught:
        await flags.is_set(chip(board, 3))
    assert not is_in_use(caught.value)
