"""Faults of a simulated board: the code lists of its chips, and the events about them."""

from __future__ import annotations

import time
from enum import IntEnum

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.lab.simulator.handle import BoardHandle
from trio_npu_dra.lab.simulator.layout import BOARD, DEVICE, EVENT, FAULT, MAX_EVENTS, MAX_FAULTS
from trio_npu_dra.lab.simulator.state_file import element


class Severity(IntEnum):
    """Severity of a fault; from minor on it shows in the device's health."""

    WARNING = 0
    MINOR = 1
    MAJOR = 2
    CRITICAL = 3


class Assertion(IntEnum):
    """The meaning of a fault event."""

    RECOVERY = 0
    OCCURRENCE = 1
    NOTICE = 2


class FaultControl(BoardHandle):
    """Faults begin and end on a chip's list and in events.

    `add_fault` and `clear_fault` change both at one moment. Real chips do not: the event or the
    list can be ahead, and a recovery event comes while the list still has the code (mind-cluster
    waits a second for that). With `list_fault`, `unlist_fault` and `emit_event` a test can do the
    halves in any order.
    """

    @property
    def events_lost(self) -> int:
        """Events that were overwritten before a subscriber read them.

        The kernel keeps 256 for each process and overwrites the oldest (driver source,
        dms_event_distribute.c); here subscribers share the 256 and their filters do not count.
        """
        with self._file.locked():
            return self._file.number(BOARD, 0, "events_lost")

    def add_fault(self, device: int, code: int, severity: Severity) -> None:
        """List a fault code on a chip and send every subscriber its occurrence.

        Raises:
            ConfigError: The chip has as many faults as DCMI can list.
        """
        with self._file.locked():
            raised = self._list(device, code, severity)
            self._append_event(device, code, severity, Assertion.OCCURRENCE, raised)

    def clear_fault(self, device: int, code: int) -> None:
        """Take a fault off a chip's list and send every subscriber the recovery.

        Raises:
            ConfigError: The chip does not have that fault.
        """
        with self._file.locked():
            severity, raised = self._unlist(device, code)
            # A recovery carries the time of the occurrence, as on real hardware.
            self._append_event(device, code, severity, Assertion.RECOVERY, raised)

    def list_fault(self, device: int, code: int, severity: Severity) -> None:
        """List a fault code on a chip without an event.

        Raises:
            ConfigError: The chip has as many faults as DCMI can list.
        """
        with self._file.locked():
            self._list(device, code, severity)

    def unlist_fault(self, device: int, code: int) -> None:
        """Take a fault off a chip's list without an event.

        Raises:
            ConfigError: The chip does not have that fault.
        """
        with self._file.locked():
            self._unlist(device, code)

    def emit_event(
        self, device: int, code: int, severity: Severity, assertion: Assertion = Assertion.NOTICE
    ) -> None:
        """Send an event that changes no list; the recovery of a listed fault carries its time."""
        with self._file.locked():
            listed = {fault: at for fault, _, at in self._faults(self._position(device))}
            raised = _now()
            if assertion is Assertion.RECOVERY:
                raised = listed.get(code, raised)
            self._append_event(device, code, severity, assertion, raised)

    # --- parts, called with the file locked -------------------------------------------------------

    def _list(self, device: int, code: int, severity: Severity) -> int:
        """Append a fault to the list and return when it was raised."""
        raised = _now()
        base = self._position(device)
        count = self._file.number(DEVICE, base, "fault_count")
        if count == MAX_FAULTS:
            raise ConfigError(f"device {device} has {MAX_FAULTS} faults already")
        fault = FAULT.pack({"code": code, "severity": severity, "raised_ms": raised})
        self._file.write(element(DEVICE, "faults", count, base), fault)
        self._file.put(DEVICE, base, "fault_count", count + 1)
        return raised

    def _unlist(self, device: int, code: int) -> tuple[Severity, int]:
        """Take a fault off the list and return its severity, and when it was raised."""
        base = self._position(device)
        faults = self._faults(base)
        index = next((i for i, fault in enumerate(faults) if fault[0] == code), None)
        if index is None:
            raise ConfigError(f"device {device} has no fault {code:08X}")
        _, severity, raised = faults.pop(index)
        packed = (FAULT.pack({"code": c, "severity": s, "raised_ms": at}) for c, s, at in faults)
        self._file.write(element(DEVICE, "faults", 0, base), b"".join(packed))
        self._file.put(DEVICE, base, "fault_count", len(faults))
        return Severity(severity), raised

    def _faults(self, base: int) -> list[tuple[int, int, int]]:
        """Code, severity and time of each fault of the device at that place."""
        count = self._file.number(DEVICE, base, "fault_count")
        places = [element(DEVICE, "faults", index, base) for index in range(count)]
        return [
            (
                self._file.number(FAULT, place, "code"),
                self._file.number(FAULT, place, "severity"),
                self._file.number(FAULT, place, "raised_ms"),
            )
            for place in places
        ]

    def _append_event(
        self, device: int, code: int, severity: Severity, assertion: Assertion, raised_ms: int
    ) -> None:
        self._position(device)
        serial = self._file.number(BOARD, 0, "next_event")
        event = EVENT.pack(
            {
                "raised_ms": raised_ms,
                "physical_id": device,
                "code": code,
                "severity": severity,
                "assertion": assertion,
                "serial": serial & 0x7FFFFFFF,
                "name": f"simulated fault 0x{code:08X}",
            }
        )
        self._file.write(element(BOARD, "events", serial % MAX_EVENTS), event)
        self._file.put(BOARD, 0, "next_event", serial + 1)


def _now() -> int:
    return time.time_ns() // 1_000_000
