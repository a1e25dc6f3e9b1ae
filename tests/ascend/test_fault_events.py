"""Events from the library's thread, through real ctypes, into trio."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
import weakref
from dataclasses import replace

import pytest
import trio
import trio.testing

from dev.rig.waiting import HANG_SECONDS
from trio_npu_dra.ascend.dcmi import _signatures as c
from trio_npu_dra.ascend.dcmi import client
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import Busy, NotSupported
from trio_npu_dra.ascend.dcmi.types import Assertion, FaultEvent
from trio_npu_dra.ascend.dcmi.types import Severity as Alarm
from trio_npu_dra.ascend.subscription import CAPACITY, EventInbox
from trio_npu_dra.lab.simulator import Assertion as Simulated
from trio_npu_dra.lab.simulator import BoardControl, Severity

EVENT = FaultEvent(
    logic_id=1, code=2, severity=Alarm.MAJOR, assertion=Assertion.OCCURRENCE, raised_at=3.0
)


async def test_an_event_has_what_the_driver_says(dcmi: Dcmi, control: BoardControl) -> None:
    """Chip by logic id, code, severity, when it was raised, and when it was heard, in seconds."""
    woken = trio.Event()
    inbox = EventInbox(woken.set)
    dcmi.init()
    dcmi.subscribe(inbox.put)
    before = time.monotonic()
    control.add_fault(3, 0x80E01801, Severity.CRITICAL)
    with trio.fail_after(HANG_SECONDS):
        await woken.wait()
    (event,), lost = inbox.take()
    assert lost == 0
    assert (event.logic_id, event.code) == (3, 0x80E01801)
    assert (event.severity, event.assertion) == (Alarm.CRITICAL, Assertion.OCCURRENCE)
    assert 1e9 < event.raised_at < 1e10
    assert before <= event.heard_at <= time.monotonic()


def test_events_of_newer_drivers_do_no_harm(dcmi: Dcmi) -> None:
    """Numbers that we do not know are None; events of another kind are laid out otherwise."""
    heard: list[FaultEvent] = []
    dcmi.init()
    dcmi.subscribe(heard.append)
    call = client._callbacks[-1]  # as the library's thread does
    event = c.dcmi_event()
    event.dms_event.deviceid, event.dms_event.event_id = 3, 0x80E01801
    event.dms_event.severity, event.dms_event.assertion = 3, 1
    event.dms_event.alarm_raised_time = 1_500
    call(ctypes.pointer(event))
    event.dms_event.severity, event.dms_event.assertion = 9, 9
    call(ctypes.pointer(event))
    event.type = 1
    call(ctypes.pointer(event))
    known = FaultEvent(
        logic_id=3,
        code=0x80E01801,
        severity=Alarm.CRITICAL,
        assertion=Assertion.OCCURRENCE,
        raised_at=1.5,
    )
    assert heard == [known, replace(known, severity=None, assertion=None)]


async def test_a_process_subscribes_once(dcmi: Dcmi) -> None:
    """The second time is refused, and the first goes on."""
    dcmi.init()
    dcmi.subscribe(EventInbox(lambda: None).put)
    with pytest.raises(Busy):
        dcmi.subscribe(EventInbox(lambda: None).put)


def test_events_after_the_end_of_trio_do_no_harm(dcmi: Dcmi, control: BoardControl) -> None:
    """The library goes on calling; nothing is raised."""
    arrived = threading.Event()

    async def subscribe() -> EventInbox:
        inbox = EventInbox(lambda: None)

        def put(event: FaultEvent) -> None:
            inbox.put(event)
            arrived.set()

        dcmi.init()
        dcmi.subscribe(put)
        return inbox

    inbox = trio.run(subscribe)
    inbox.put(EVENT)
    control.emit_event(3, 1, Severity.MINOR, Simulated.NOTICE)
    assert arrived.wait(5)


async def test_a_busy_daemon_loses_events_not_memory() -> None:
    """Beyond the capacity they are counted."""
    inbox = EventInbox(lambda: None)
    for number in range(CAPACITY + 3):
        inbox.put(replace(EVENT, raised_at=float(number)))
    events, lost = inbox.take()
    assert lost == 3
    assert [event.raised_at for event in events] == [float(number) for number in range(CAPACITY)]
    assert inbox.take() == ([], 0)


async def test_a_burst_of_events_wakes_once() -> None:
    """One turn takes them all."""
    woken: list[None] = []
    inbox = EventInbox(lambda: woken.append(None))
    for _ in range(3):
        inbox.put(EVENT)
    await trio.testing.wait_all_tasks_blocked()
    assert len(woken) == 1


def test_a_driver_that_refuses_keeps_no_handler(dcmi: Dcmi, control: BoardControl) -> None:
    """It is asked again and again, each time with another handler."""

    class Handler:
        def put(self, event: FaultEvent) -> None:
            """Not called."""

    handler = Handler()
    kept = weakref.ref(handler)
    dcmi.init()
    control.set_return_code("dcmi_subscribe_fault_event", -8255)
    with pytest.raises(NotSupported):
        dcmi.subscribe(handler.put)
    del handler
    gc.collect()
    assert kept() is None
