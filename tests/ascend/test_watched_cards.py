"""The chips that the watcher finds."""

from __future__ import annotations

import logging
import shutil

import pytest

from tests.ascend.conftest import Card
from tests.ascend.watching import BUSINESS, Watching
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.faults import CARD_DROPPED
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.ascend.single_look import read_board
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.lab.simulator import BoardControl, Severity, SimulatedBoard, load_profile


async def test_a_card_taken_out_is_gone_until_it_is_back(
    watching: Watching, card: Card, caplog: pytest.LogCaptureFixture
) -> None:
    """The chip stays on the Board with a fault, and is healthy once it is listed again."""
    caplog.set_level(logging.INFO)
    await watching.start()
    before = watching.board.value.by_name["npu-5"]
    card.pull()
    board = await watching.until(lambda board: board.by_name["npu-5"].gone)
    chip = board.by_name["npu-5"]
    assert chip.uuid == before.uuid
    assert [fault.code for fault in chip.health.faults] == [CARD_DROPPED]
    assert not board.unanswered
    card.put_back()
    board = await watching.until(lambda board: not board.by_name["npu-5"].gone)
    assert board.by_name["npu-5"] == before
    assert caplog.text.count("NPU is gone") == caplog.text.count("NPU is there again") == 1


async def test_a_chip_that_one_list_lacks_is_unmonitored_and_loses_no_pod(
    watching: Watching, simulated: SimulatedBoard, card: Card
) -> None:
    """While its accelerator is on the bus, only a second list like it makes it gone."""
    await watching.start()
    card.unlist()
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
    """Under the union policy the whole card is unlisted once the cards are listed again."""
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
    watching: Watching, control: BoardControl, card: Card, board: Board
) -> None:
    """A card that was taken out while no daemon ran, and one that does not answer now."""
    card.pull()
    control.set_silent(2)
    watching.known = Board(chips=(board.chips[2], board.chips[5]))
    await watching.start()
    seen = watching.board.value
    assert [chip.name for chip in seen.chips if chip.gone] == ["npu-5"]
    assert seen.by_name["npu-2"].uuid == board.chips[2].uuid
    assert len(seen.chips) == 8


@pytest.mark.parametrize("is_listed", [False, True])
async def test_a_card_that_boots_while_the_driver_starts_is_found(
    watching: Watching, control: BoardControl, card: Card, *, is_listed: bool
) -> None:
    """Whether the library lists it late or it answers late; nothing changes on the PCI bus."""
    if is_listed:
        control.set_silent(5)
    else:
        card.unlist()
    await watching.start()
    assert len(watching.board.value.chips) == 7
    if is_listed:
        control.restore(5)
    else:
        card.put_back()
    board = await watching.until(lambda board: len(board.chips) == 8)
    assert board.gaps == ()


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


async def test_a_driver_that_starts_again_is_asked_for_its_cards(
    watching: Watching, simulated: SimulatedBoard
) -> None:
    """It makes its device nodes again; nothing changes on the bus. No chip is gone meanwhile."""
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
