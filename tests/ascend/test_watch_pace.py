"""When the watcher reads which chip, on a clock that stands still until the test moves it."""

from __future__ import annotations

from ipaddress import ip_interface
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.ascend.conftest import Card
from tests.ascend.pacing import NODE, Paced
from tests.ascend.test_chip_faults import LINK
from tests.ascend.watching import BUSINESS, MINOR, NEVER
from trio_npu_dra.ascend.dcmi.types import Assertion
from trio_npu_dra.ascend.faults import CARD_DROPPED
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.lab.simulator import BoardControl, Severity

REFUSED = "dcmi_subscribe_fault_event"


async def test_chips_that_no_event_names_are_asked_every_twelfth_time(
    paced: Paced, mock_clock: MockClock
) -> None:
    """Twice at the start: the second look is for what came before events did."""
    await paced.start(mock_clock)
    await paced.jump(1)
    assert paced.asked("health") == [2] * 8
    await paced.jump(119)
    assert paced.asked("health") == [2] * 8
    await paced.jump(1)
    assert paced.asked("health") == [3] * 8


async def test_without_events_chips_are_asked_each_time(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """Which is what the interval is."""
    control.set_return_code(REFUSED, -8255)
    await paced.start(mock_clock)
    await paced.jump(9)
    assert paced.asked("health") == [1] * 8
    await paced.jump(1)
    assert paced.asked("health") == [2] * 8


async def test_a_chip_that_events_keep_naming_is_let_rest(
    paced: Paced, mock_clock: MockClock
) -> None:
    """The others are not asked for it, and an event about no chip of ours does no harm."""
    await paced.start(mock_clock)
    await paced.jump(1)
    for _ in range(5):
        await paced.tell(3)
        await paced.tell(99)
    assert paced.asked("health") == [2] * 8
    await paced.jump(0.04)
    assert paced.asked("health") == [2] * 8
    await paced.jump(0.02)
    assert paced.asked("health") == [2, 2, 2, 3, 2, 2, 2, 2]
    await paced.jump(1)
    assert paced.asked("health") == [2, 2, 2, 3, 2, 2, 2, 2]


async def test_a_chip_that_an_event_names_is_read_before_others_that_are_due(
    paced: Paced, mock_clock: MockClock
) -> None:
    """With calls of seconds it would wait for half a minute."""
    await paced.start(mock_clock)
    await paced.jump(1)
    await paced.jump_into(120, *(("health", card) for card in range(8)))
    first = paced.asked("health").index(3)
    named = (first + 4) % 8
    await paced.tell(named)
    paced.dcmi.held[("health", first)].set()
    await paced.settle()
    assert paced.asked("health") == [3 if card in {first, named} else 2 for card in range(8)]
    await paced.let_go()


async def test_a_driver_that_refuses_is_asked_again_every_sixtieth_time(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """Once it agrees all chips are looked at, as at the start."""
    control.set_return_code(REFUSED, -8012)
    await paced.start(mock_clock)
    await paced.jump(15)
    await paced.jump(580)  # chips are asked now, and ten seconds after
    assert paced.asked("health") == [3] * 8
    assert paced.dcmi.asked["subscribe", NODE] == 1
    control.release(REFUSED)
    await paced.jump(5)
    assert paced.dcmi.asked["subscribe", NODE] == 2
    assert paced.asked("health") == [4] * 8


async def test_ports_are_asked_each_time_where_there_is_one(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """Its problem is published immediately."""
    control.set_return_code("dcmi_get_device_network_health", -8255, 5)
    await paced.start(mock_clock)
    await paced.jump(1)
    assert paced.asked("network") == [1] * 8
    control.set_network_health(3, 3)
    await paced.jump(9)  # nothing else is due then
    assert paced.asked("network") == [2, 2, 2, 2, 2, 1, 2, 2]
    assert [bool(npu.health.network) for npu in paced.board.chips] == [
        card == 3 for card in range(8)
    ]


async def test_addresses_are_read_after_news_of_the_link_and_now_and_then(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """In the next interval after an event of the link, or after its health changed."""
    await paced.start(mock_clock)
    await paced.jump(1)
    for card in range(8):
        control.set_address(card, ip_interface(f"10.20.0.{card}/24"))
    await paced.tell(1, LINK)
    control.set_network_health(3, 3)
    await paced.jump(10)
    assert _with_new_address(paced) == ["npu-1", "npu-3"]
    for _ in range(10):
        await paced.jump(10)
    assert _with_new_address(paced) == ["npu-1", "npu-3"]
    await paced.jump(10)
    assert _with_new_address(paced) == [f"npu-{card}" for card in range(8)]


def _with_new_address(paced: Paced) -> list[str]:
    networks = {npu.name: str(npu.network) for npu in paced.board.chips}
    return [name for name, network in networks.items() if network.startswith("10.20.0.")]


@pytest.mark.parametrize("code", [-8255, -8005])
async def test_a_port_that_was_denied_once_is_asked_again(
    paced: Paced, mock_clock: MockClock, control: BoardControl, code: int
) -> None:
    """A card that answers "not supported" may be starting; its known problem stands."""
    control.set_network_health(3, 3)
    await paced.start(mock_clock)
    control.set_return_code("dcmi_get_device_network_health", code, 3)
    await paced.jump(10)
    control.release("dcmi_get_device_network_health", 3)
    assert paced.health(3).network
    control.set_network_health(3, 0)
    for _ in range(12):
        await paced.jump(10)
    assert not paced.health(3).network


@pytest.mark.parametrize("code", [-8255, -8012, -8008])
async def test_a_chip_that_drops_without_an_event_is_missed_in_the_next_interval(
    paced: Paced, mock_clock: MockClock, control: BoardControl, code: int
) -> None:
    """Its port does not answer, or there is none to be asked: then it is read."""
    await paced.start(mock_clock)
    await paced.jump(1)
    control.set_return_code("dcmi_get_device_network_health", code, 3)
    control.set_gone(3)
    await paced.jump(10)
    assert paced.health(3).unmonitored
    await paced.jump(1)
    assert paced.codes(3) == [CARD_DROPPED]
    control.release("dcmi_get_device_network_health", 3)
    control.restore(3)
    await paced.jump(10)  # as soon as that of a chip that does not answer
    assert paced.codes(3) == []


async def test_a_library_that_cannot_start_is_asked_in_each_interval(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """For however long: all pods of the node wait for it, and the Board says why."""
    control.set_return_code("dcmi_init", -8012)
    paced.begin(mock_clock)
    for times in range(1, 20):
        await paced.jump(10 if times > 1 else 0)
        assert paced.dcmi.asked["init", NODE] == times
    assert not paced.board.is_read
    (why,) = paced.board.gaps
    assert why.startswith("the NPUs have not been read yet: dcmi_init returned -8012")
    control.release("dcmi_init")
    await paced.jump(10)
    assert len(paced.board.chips) == 8
    assert paced.board.gaps == ()


async def test_a_start_that_takes_longer_than_its_deadline_is_one(
    paced: Paced, mock_clock: MockClock
) -> None:
    """The library is not started a second time, which would take as long again."""
    paced.begin(mock_clock)
    await paced.jump_into(0, "init")
    for _ in range(7):
        await paced.jump(10)
    assert "gave no answer in 60 s" in paced.board.gaps[0]
    await paced.let_go()
    await paced.jump(10)
    assert len(paced.board.chips) == 8
    assert paced.dcmi.asked["init", NODE] == 1


async def test_a_recovery_ahead_of_the_list_is_followed_up_after_a_second(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """The Board says which event it was that changed it, and none where a look found it."""
    control.list_fault(3, BUSINESS, Severity.MAJOR)
    await paced.start(mock_clock)
    for pause in (1, 1):  # the second look, and its rest
        await paced.jump(pause)
    control.list_fault(3, MINOR, Severity.MINOR)
    await paced.tell(3, MINOR, Assertion.OCCURRENCE, heard_at=4.0)
    await paced.jump(0.1)  # it rests
    await paced.tell(3, BUSINESS, Assertion.RECOVERY, heard_at=5.0)
    assert paced.codes(3) == [BUSINESS, MINOR]
    assert paced.board.heard_at == 4.0
    control.unlist_fault(3, BUSINESS)
    looks = paced.asked("health")[3]
    await paced.jump(0.9)
    assert paced.asked("health")[3] == looks
    await paced.jump(0.2)
    assert paced.codes(3) == [MINOR]
    assert paced.board.heard_at == 5.0
    control.unlist_fault(3, MINOR)
    await paced.jump(120)
    assert paced.codes(3) == []
    assert paced.board.heard_at is None


async def test_a_listing_answers_an_event_too(
    paced: Paced, mock_clock: MockClock, control: BoardControl, card: Card
) -> None:
    """All chips were read: no later change has the event's time."""
    await paced.start(mock_clock)
    card.pull()
    mock_clock.jump(10)
    await paced.tell(3, heard_at=5.0)
    assert paced.board.by_name["npu-5"].gone
    control.list_fault(3, BUSINESS, Severity.MAJOR)
    for pause in (120, 1):
        await paced.jump(pause)
    assert paced.codes(3) == [BUSINESS]
    assert paced.board.heard_at is None


async def test_a_rule_speaks_when_its_time_has_come(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """With no event and no look at the chip."""
    paced.watching.interval = NEVER
    control.list_fault(3, LINK, Severity.MINOR)
    await paced.start(mock_clock)
    await paced.jump(1)  # without an event a second reading must agree
    levels = []
    for pause in (19, 1):
        await paced.jump(pause)
        levels.append(paced.health(3).level)
    assert levels == [FaultLevel.NOT_HANDLE, FaultLevel.PRE_SEPARATE_NPU]


async def test_writes_are_a_second_apart_and_only_of_news(
    paced: Paced, mock_clock: MockClock, control: BoardControl, tmp_path: Path
) -> None:
    """A storm of faults is not one of writes."""
    await paced.start(mock_clock)
    await paced.jump(1)  # from here on nothing else is due
    assert paced.faults.saves == 0
    for code in (BUSINESS, MINOR):
        control.list_fault(3, code, Severity.MINOR)
        await paced.jump(0.1)
        await paced.tell(3, code, Assertion.OCCURRENCE)
    assert paced.faults.saves == 1
    await paced.jump(1)
    assert paced.faults.saves == 2
    assert (tmp_path / "faults.json").exists()
    for _ in range(3):
        await paced.jump(10)
    assert paced.faults.saves == 2


async def test_a_watcher_without_news_does_nothing(paced: Paced, mock_clock: MockClock) -> None:
    """It waits for them, and for the next time; ports that are as they were are none."""
    await paced.start(mock_clock)
    await paced.jump(1)
    rounds = paced.faults.looked_up
    await paced.jump(9)
    assert paced.asked("network") == [2] * 8
    assert paced.faults.looked_up == rounds


async def test_calls_that_are_stuck_are_named(
    paced: Paced, mock_clock: MockClock, card: Card
) -> None:
    """Each with its chip and its limit; a listing has far more time than one call."""
    await paced.start(mock_clock)
    await paced.jump_into(120, "health", "network")
    mock_clock.jump(121)
    (line,) = watchdog.overdue()
    assert line.endswith(" device 0 has taken 121 s, at most 120 s is normal")
    await paced.let_go()
    card.pull()
    await paced.jump_into(10, "init", "network")
    mock_clock.jump(601)
    assert "listing NPUs has taken 601 s, at most 600 s is normal" in watchdog.overdue()


async def test_a_disk_that_is_stuck_is_named(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """Faults are published all the same."""
    await paced.start(mock_clock)
    paced.faults.slow = trio.Event()
    control.list_fault(3, BUSINESS, Severity.MAJOR)
    for pause in (1, 1):
        await paced.jump(pause)
    assert paced.codes(3) == [BUSINESS]
    mock_clock.jump(121)
    assert watchdog.overdue() == ("saving faults has taken 121 s, at most 120 s is normal",)
    paced.faults.slow.set()
