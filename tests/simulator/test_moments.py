"""Code lists, health and events that do not change at one moment; events and calls that collide."""

from __future__ import annotations

import ctypes
import queue
import struct
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.simulator.subscribing import (
    CALLBACK,
    EVENT_SIZE,
    KEPT,
    LIMIT,
    Filter,
    described,
    subscribe,
)
from trio_npu_dra.lab.simulator import Assertion, BoardControl, Severity

if TYPE_CHECKING:
    from tests.simulator.conftest import RawDcmi

FAULT = 0x80E01801
HEALTH = "dcmi_get_device_health"
RING = 256


def raised_at(event: bytes) -> int:
    """When the fault of an event was raised, in ms."""
    return int(struct.unpack_from("=Q", event, 8 + 24)[0])


# --- code list and events ------------------------------------------------------------------------


def test_an_event_can_be_ahead_of_the_code_list(dcmi: RawDcmi, control: BoardControl) -> None:
    """The occurrence comes while the list is still empty; listing the fault sends nothing more."""
    events = subscribe(dcmi, Filter())
    control.emit_event(5, FAULT, Severity.MAJOR, Assertion.OCCURRENCE)
    assert described(events.get(timeout=LIMIT)) == (FAULT, 5, 2, 1)
    assert dcmi.faults(5) == []
    assert dcmi.number(HEALTH, 5, 0) == 0
    control.list_fault(5, FAULT, Severity.MAJOR)
    assert dcmi.faults(5) == [FAULT]
    assert dcmi.number(HEALTH, 5, 0) == 2
    control.emit_event(6, 1, Severity.WARNING)
    assert described(events.get(timeout=LIMIT))[:2] == (1, 6)


def test_the_code_list_can_be_ahead_of_the_event(dcmi: RawDcmi, control: BoardControl) -> None:
    """A read of the list finds the code before its event comes."""
    events = subscribe(dcmi, Filter())
    control.list_fault(5, FAULT, Severity.MAJOR)
    assert dcmi.faults(5) == [FAULT]
    control.emit_event(5, FAULT, Severity.MAJOR, Assertion.OCCURRENCE)
    assert described(events.get(timeout=LIMIT)) == (FAULT, 5, 2, 1)


def test_the_code_list_can_show_a_recovery_late(dcmi: RawDcmi, control: BoardControl) -> None:
    """The recovery event, with the time of the occurrence, comes while the code is still listed."""
    events = subscribe(dcmi, Filter())
    control.add_fault(5, FAULT, Severity.MAJOR)
    begun = events.get(timeout=LIMIT)
    while time.time_ns() // 1_000_000 <= raised_at(begun):
        pass  # so that a recovery with the present time would differ
    control.emit_event(5, FAULT, Severity.MAJOR, Assertion.RECOVERY)
    ended = events.get(timeout=LIMIT)
    assert described(ended) == (FAULT, 5, 2, 0)
    assert raised_at(ended) == raised_at(begun)
    assert dcmi.faults(5) == [FAULT]
    control.unlist_fault(5, FAULT)
    assert dcmi.faults(5) == []
    control.emit_event(6, 1, Severity.WARNING)
    assert described(events.get(timeout=LIMIT))[:2] == (1, 6)


def test_forced_health_disagrees_with_the_codes(dcmi: RawDcmi, control: BoardControl) -> None:
    """It is reported whatever the list has, until it is withdrawn."""
    control.add_fault(1, FAULT, Severity.CRITICAL)
    control.force_health(1, Severity.WARNING)
    assert (dcmi.number(HEALTH, 1, 0), dcmi.faults(1)) == (0, [FAULT])
    control.force_health(1, None)
    assert dcmi.number(HEALTH, 1, 0) == 3
    control.force_health(2, Severity.CRITICAL)
    assert (dcmi.number(HEALTH, 2, 0), dcmi.faults(2)) == (3, [])
    control.restore(2)
    assert dcmi.number(HEALTH, 2, 0) == 0


# --- events that are overwritten -----------------------------------------------------------------


@pytest.mark.parametrize(("sent", "lost"), [(RING, 0), (RING + 44, 44)])
def test_a_slow_subscriber_loses_the_oldest_events(
    dcmi: RawDcmi, control: BoardControl, sent: int, lost: int
) -> None:
    """256 events wait while its handler is busy; more overwrite the oldest, and are counted."""
    busy, go_on = threading.Event(), threading.Event()
    codes: queue.SimpleQueue[int] = queue.SimpleQueue()

    def receive(event: int) -> None:
        codes.put(described(ctypes.string_at(event, EVENT_SIZE))[0])
        busy.set()
        go_on.wait(LIMIT)

    handler = CALLBACK(receive)
    KEPT.append(handler)
    assert dcmi.code("dcmi_subscribe_fault_event", -1, -1, Filter(), handler) == 0
    control.emit_event(0, 0, Severity.MINOR)
    assert busy.wait(LIMIT)
    for code in range(1, sent + 1):
        control.emit_event(0, code, Severity.MINOR)
    go_on.set()
    received = [codes.get(timeout=LIMIT) for _ in range(1 + RING)]
    assert received == [0, *range(lost + 1, sent + 1)]
    assert control.events_lost == lost


# --- calls beside dcmi_init ----------------------------------------------------------------------


def until_counted(control: BoardControl, call: Callable[[], object]) -> None:
    """Repeat a call until it counts as one beside dcmi_init."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        call()
        if control.calls_beside_init > 0:
            return
    raise AssertionError("calls beside dcmi_init go unnoticed")


@pytest.mark.parametrize("first", ["dcmi_init", HEALTH])
def test_calls_beside_init_are_counted(dcmi: RawDcmi, control: BoardControl, first: str) -> None:
    """They are calls before dcmi_init returns, or dcmi_init before a slow call does."""
    out = ctypes.c_int()
    calls: dict[str, Callable[[], object]] = {
        "dcmi_init": lambda: dcmi.code("dcmi_init"),
        HEALTH: lambda: dcmi.code(HEALTH, 0, 0, ctypes.byref(out)),
    }
    second = calls[HEALTH if first == "dcmi_init" else "dcmi_init"]
    if first == "dcmi_init":
        control.hang(first)
    else:
        control.set_delay(first, 500)
    waiting = threading.Thread(target=calls[first], daemon=True)
    waiting.start()
    until_counted(control, second)
    control.release(first)
    waiting.join(LIMIT)
    counted = control.calls_beside_init
    for call in calls.values():
        call()
    assert control.calls_beside_init == counted


def test_two_inits_at_once_are_counted(dcmi: RawDcmi, control: BoardControl) -> None:
    """They count because both write the same tables."""
    control.hang("dcmi_init")
    inits = [threading.Thread(target=dcmi.code, args=("dcmi_init",), daemon=True) for _ in range(2)]
    for init in inits:
        init.start()
    until_counted(control, lambda: None)
    control.release("dcmi_init")
    for init in inits:
        init.join(LIMIT)
    assert control.calls_beside_init == 1


def test_calls_one_after_another_are_not_counted(dcmi: RawDcmi, control: BoardControl) -> None:
    """They do not count, not even around a second dcmi_init."""
    dcmi.number(HEALTH, 0, 0)
    assert dcmi.code("dcmi_init") == 0
    dcmi.number(HEALTH, 0, 0)
    assert control.calls_beside_init == 0
