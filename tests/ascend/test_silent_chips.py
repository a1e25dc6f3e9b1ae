"""Chips that are listed and do not answer, wholly or in part, and chips that are gone."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace

import pytest

from dev.rig.looking import Look, Relay
from tests.ascend.conftest import Card
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.types import ChipRef, Link
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.discovery import discover, without_cards
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard, load_profile


@pytest.mark.parametrize(
    "function", ["dcmi_get_device_logic_id", "dcmi_get_device_chip_info_v2", "dcmi_get_device_type"]
)
async def test_a_chip_that_does_not_tell_its_identity_is_left_out(
    look: Look,
    dcmi: Dcmi,
    control: BoardControl,
    caplog: pytest.LogCaptureFixture,
    function: str,
) -> None:
    """The other seven are found; one warning, and none again while that stays so."""
    dcmi.init()
    control.set_return_code(function, -8005, 2)
    board = await look()
    assert [npu.physical_id for npu in board.chips] == [0, 1, 3, 4, 5, 6, 7]
    assert len(board.unanswered) == 1
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.__dict__["problem"] for record in warnings] == [board.unanswered[0]]
    caplog.clear()
    assert await look(board) == board
    assert "left out" not in caplog.text


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
async def test_a_die_that_does_not_tell_what_it_is_leaves_its_sister(
    look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """Nor is anything else of the card taken for silent."""
    dcmi.init()
    control.set_return_code("dcmi_get_device_type", -8005, 2)
    board = await look()
    assert "npu-3" in board.by_name
    assert [line.partition(":")[0] for line in board.unanswered] == ["card 1 device 0"]


async def test_a_card_that_does_not_answer_init_is_left_out(
    look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """-1 in the card list is no card; the others are found."""
    control.set_silent(5)
    dcmi.init()
    board = await look()
    assert [npu.physical_id for npu in board.chips] == [0, 1, 2, 3, 4, 6, 7]
    assert board.unanswered == ("1 of 8 cards do not answer",)


async def test_a_known_chip_that_does_not_answer_stays(
    board: Board, look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """Its facts are kept, whether it or its card is silent, or the library knows no type of it."""
    control.set_silent(5)
    control.set_return_code("dcmi_get_device_logic_id", -8012, 2)
    control.set_return_code("dcmi_get_device_type", -8255, 3)
    dcmi.init()
    fresh = await look(board)
    assert fresh.chips == board.chips
    assert [line.partition(":")[0] for line in fresh.unanswered] == [
        "1 of 8 cards do not answer",
        "card 2 device 0",
        "card 3 device 0",
    ]


async def test_a_split_chip_that_does_not_tell_its_vnpus_now_stays_split(
    look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """It is not handed out whole because one call failed while cards were listed."""
    dcmi.init()
    control.create_vnpu(3, "vir05_1c_8g")
    control.create_vnpu(3, "vir05_1c_8g")
    control.set_share(3, enabled=True)
    board = await look()
    for function in ("dcmi_get_device_info", "dcmi_get_device_share_enable"):
        control.set_return_code(function, -8006, 3)
    chip = (await look(board)).by_name["npu-3"]
    assert (chip.vnpus, chip.device_share) == ((148, 149), True)
    for function in ("dcmi_get_device_info", "dcmi_get_device_share_enable"):
        control.set_return_code(function, -8255, 3)
    chip = (await look(board)).by_name["npu-3"]
    assert (chip.vnpus, chip.device_share) == ((), None)


async def test_a_chip_that_is_not_listed_any_more_is_gone(
    board: Board, look: Look, dcmi: Dcmi, card: Card, control: BoardControl
) -> None:
    """A card that was taken out stays as that, with its facts, also beside a silent card."""
    card.pull()
    dcmi.init()
    fresh = await look(board)
    assert fresh.chips[5] == replace(board.chips[5], gone=True)
    assert not fresh.unanswered
    control.set_silent(2)
    dcmi.init()
    assert [chip.gone for chip in (await look(fresh)).chips] == [n == 5 for n in range(8)]


async def test_a_chip_on_the_bus_is_gone_when_two_lists_in_a_row_lack_it(
    board: Board, look: Look, dcmi: Dcmi, card: Card
) -> None:
    """It may be booting; a list that has it between the two counts."""
    for is_back in (True, False):
        card.unlist()
        dcmi.init()
        fresh = await look(board)
        assert fresh.chips[5] == replace(board.chips[5], unlisted=True)
        assert fresh.unanswered == ("card 5 device 0: it was listed before and is not now",)
        if is_back:
            card.put_back()
            dcmi.init()
            assert await look(fresh) == board
    fresh = await look(fresh)
    assert fresh.chips[5] == replace(board.chips[5], gone=True)
    assert fresh.unanswered == ()


class Omitting(Dcmi):
    """A library whose list lacks a card that answers."""

    def card_list(self) -> tuple[int, ...]:
        """All but the sixth."""
        return tuple(card for card in super().card_list() if card != 5)


async def test_a_chip_that_answers_is_not_gone_however_many_lists_lack_it(
    board: Board,
    worker: DcmiWorker,
    host: Host,
    simulated: SimulatedBoard,
    card: Card,
) -> None:
    """Else a list that is wrong would evict its pod; one that does not answer is gone."""
    dcmi = Omitting.load(simulated.root)
    dcmi.init()
    known = board
    for _ in range(3):
        known = await discover(worker, dcmi, host, known=known)
        assert known.chips == board.chips
        assert known.unanswered == ("card 5 device 0: it answers, but the list of cards lacks it",)
    card.unlist()
    dcmi.init()
    for _ in range(2):
        known = await discover(worker, dcmi, host, known=known)
    assert known.chips[5] == replace(board.chips[5], gone=True)


@pytest.mark.parametrize("is_on_bus", [True, False])
async def test_beside_a_silent_card_one_is_gone_only_if_the_bus_has_lost_it(
    board: Board, look: Look, dcmi: Dcmi, card: Card, control: BoardControl, *, is_on_bus: bool
) -> None:
    """The library does not say which card is silent."""
    if is_on_bus:
        card.unlist()
    else:
        card.pull()
    control.set_silent(2)
    dcmi.init()
    gone = [chip.name for chip in (await look(board)).chips if chip.gone]
    assert gone == ([] if is_on_bus else ["npu-5"])


async def test_a_chip_that_is_listed_again_is_not_gone(board: Board, look: Look) -> None:
    """The same one, or another one in its place: its new facts count."""
    other = with_other(with_other(board, 4, gone=True), 5, gone=True, uuid="another")
    assert await look(other) == board


@pytest.mark.parametrize("tells_die", [True, False])
async def test_a_chip_with_another_physical_id_is_on_the_board_once(
    board: Board, look: Look, control: BoardControl, *, tells_die: bool
) -> None:
    """After two such lists no chip has its old number, and none is gone."""
    if not tells_die:
        control.set_return_code("dcmi_get_device_die_v2", -8255)
        board = replace(board, chips=tuple(replace(chip, uuid=None) for chip in board.chips))
    moved = replace(board.chips[5], physical_id=9)
    known = replace(board, chips=(*board.chips[:5], *board.chips[6:], moved))
    once = await look(known)
    assert list(once.by_name) == list(known.by_name)
    assert await look(once) == board


def with_other(board: Board, number: int, **facts: object) -> Board:
    """The Board with other facts about one NPU."""
    npus = [*board.chips]
    npus[number] = replace(npus[number], **facts)  # type: ignore[arg-type] # by name
    return replace(board, chips=tuple(npus))


async def test_a_chip_that_hangs_half_way_keeps_its_known_facts(
    board: Board, look: Look, relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    """Its die id above all, by which its faults are remembered; its identity is new.

    A chip that is not known, was gone or in another place has none, whatever its number. The log
    has it once.
    """
    relay.refused.add(("describe", ChipRef(2, 0)))
    fresh = await look(with_other(board, 2, logic_id=99))
    assert fresh.chips == board.chips
    for known in (
        EMPTY_BOARD,
        with_other(fresh, 2, ref=ChipRef(9, 0)),
        with_other(fresh, 2, gone=True),
    ):
        found = await look(known)
        assert found.chips[2].ref == ChipRef(2, 0)
        assert (found.chips[2].gone, found.chips[2].uuid) == (False, None)
        assert found.chips[2].chip_name == "910B4"
        assert found.chips[3].uuid is not None
        assert "card 2 device 0" in found.unanswered[0]  # has it read again
    assert caplog.text.count("facts are not answered") == 2  # known, and on an empty Board


async def test_a_silent_chip_keeps_its_links_and_so_its_ring(
    board: Board, look: Look, control: BoardControl
) -> None:
    """A domain does not fall apart while a chip does not answer; other links are new."""
    control.set_return_code("dcmi_get_device_logic_id", -8012, 2)
    fresh = await look(replace(board, links=dict.fromkeys(board.links, Link.PHB)))
    assert {pair for pair, link in fresh.links.items() if link is Link.PHB} == {
        pair for pair in board.links if 2 in pair
    }
    assert [chip.topology_group for chip in fresh.chips] == [
        None if number == 2 else "ring-0" for number in range(8)
    ]
    assert (await look(board)).links == board.links


class Muddled(Dcmi):
    """A library that gives the chips 0 and 1 one physical id."""

    def physical_id(self, logic_id: int) -> int:
        """The driver's number of a chip, or another one's."""
        return super().physical_id(0 if logic_id == 1 else logic_id)


async def test_chips_with_one_physical_id_are_left_out(
    worker: DcmiWorker, simulated: SimulatedBoard, host: Host, look: Look, dcmi: Dcmi
) -> None:
    """Which of them has the device node is unknown; known facts stand."""
    muddled = Muddled.load(simulated.root)
    muddled.init()
    board = await discover(worker, muddled, host)
    assert list(board.by_name) == [f"npu-{number}" for number in range(2, 8)]
    assert board.unanswered == (
        "card 0 device 0: physical id 0 is another chip's too",
        "card 1 device 0: physical id 0 is another chip's too",
    )
    dcmi.init()
    again = await discover(worker, muddled, host, known=await look())
    assert len(again.chips) == len(again.by_name) == 8


class Renumbered(Dcmi):
    """A library in whose list a card does not answer, and another has got its number."""

    def card_list(self) -> tuple[int, ...]:
        """The last card stands in the place of the first."""
        return (-1, *super().card_list()[1:])

    def physical_id(self, logic_id: int) -> int:
        """The last chip has the first one's."""
        return super().physical_id(0 if logic_id == 7 else logic_id)


async def test_a_chip_that_answers_goes_before_a_known_one_of_its_name(
    worker: DcmiWorker, simulated: SimulatedBoard, host: Host, board: Board
) -> None:
    """No NPU is on the Board twice."""
    renumbered = Renumbered.load(simulated.root)
    renumbered.init()
    once = await discover(worker, renumbered, host, known=board)
    found = await discover(worker, renumbered, host, known=once)
    assert found.by_name["npu-0"].card_id == 7
    assert len(found.chips) == len(found.by_name)


@pytest.mark.parametrize("profile", [load_profile("300i-duo-2")])
async def test_a_dead_first_die_of_a_card_leaves_its_sister(
    board: Board, look: Look, dcmi: Dcmi, simulated: SimulatedBoard
) -> None:
    """The library gives it no valid type: a known chip stays, an unknown one has a line."""
    (simulated.dev_root / "davinci0").unlink()
    dcmi.init()
    fresh = await look(board)
    assert [chip.gone for chip in fresh.chips] == [False] * 4
    never_known = await look()
    assert list(never_known.by_name) == ["npu-1", "npu-2", "npu-3"]
    (line,) = never_known.unanswered
    assert line.startswith("card 4 device 0: dcmi_get_device_type")
    assert fresh.unanswered == never_known.unanswered


async def test_a_library_that_has_no_chip_any_more_costs_none_that_is_on_the_bus(
    board: Board, host: Host, simulated: SimulatedBoard
) -> None:
    """However often it says so; all facts stay, of chips and of the node."""
    why = "the Ascend driver has no chip: it starts"
    known = without_cards(host, board, "it starts")
    assert known == replace(board, unanswered=(why,))
    assert without_cards(host, known, "it starts") == known
    (simulated.sysfs_root / "bus/pci/devices/0000:41:00.0").unlink()
    known = without_cards(host, known, "it starts")
    assert [chip.name for chip in known.chips if chip.gone] == ["npu-5"]
    assert known.unanswered == (why,)
    assert without_cards(host, known, "it starts") == known


async def test_on_a_node_without_hardware_two_answers_decide_that_chips_are_gone(
    board: Board, host: Host, simulated: SimulatedBoard
) -> None:
    """Where no bus shows them, the first answer may be that of an Ascend driver that stops."""
    shutil.rmtree(simulated.sysfs_root / "bus/pci/devices")
    (simulated.dev_root / "davinci_manager").unlink()
    first = without_cards(host, board, "none")
    assert all(chip.unlisted and not chip.gone for chip in first.chips)
    assert len(first.unanswered) == 8
    second = without_cards(host, first, "none")
    assert all(chip.gone for chip in second.chips)
    assert second.gaps == ()
