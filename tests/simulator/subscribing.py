"""Subscribes to a board's fault events through raw calls."""

from __future__ import annotations

import ctypes
import queue
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulator.conftest import RawDcmi

EVENT_SIZE = 360
LIMIT = 10.0  # seconds after which a lost event fails the test


class Filter(ctypes.Structure):
    """The event filter, passed by value."""

    _fields_ = (
        ("filter_flag", ctypes.c_ulonglong),
        ("event_id", ctypes.c_uint),
        ("severity", ctypes.c_ubyte),
        ("node_type", ctypes.c_ubyte),
        ("resv", ctypes.c_ubyte * 32),
    )


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
KEPT: list[Any] = []  # callbacks live as long as the process: nothing ends a subscription


def subscribe(dcmi: RawDcmi, event_filter: Filter, device: int = -1) -> queue.SimpleQueue[bytes]:
    """Subscribe to a board; the events come as raw structs."""
    chip = -1 if device == -1 else 0
    return _subscribe(dcmi, "dcmi_subscribe_fault_event", device, chip, event_filter)


def subscribe_by_dev_id(dcmi: RawDcmi, event_filter: Filter) -> queue.SimpleQueue[bytes]:
    """The same by the second generation's call."""
    return _subscribe(dcmi, "dcmiv2_subscribe_fault_event", -1, event_filter)


def _subscribe(dcmi: RawDcmi, function: str, *arguments: Any) -> queue.SimpleQueue[bytes]:
    events: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def receive(event: int) -> None:
        events.put(ctypes.string_at(event, EVENT_SIZE))

    handler = CALLBACK(receive)
    KEPT.append(handler)
    assert dcmi.code(function, *arguments, handler) == 0
    return events


def described(event: bytes) -> tuple[int, int, int, int]:
    """Fault code, logic id, severity and assertion of an event."""
    code, logic, _, _, _, _, severity, assertion = struct.unpack_from("=IH6B", event, 8)
    return code, logic, severity, assertion
