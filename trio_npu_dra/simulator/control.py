"""Changes a simulated board while others use it, from this or any other process.

Every operation is one change: readers see all of it or nothing, because both sides lock the state
file. Waiting readers learn of it at once (the library watches the file).
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Self

from trio_npu_dra.errors import ConfigError
from trio_npu_dra.simulator.layout import (
    BOARD,
    DEVICE,
    EVENT,
    FACTS,
    FAULT,
    MAX_EVENTS,
    MAX_FAULTS,
    MAX_PROCESSES,
    MAX_RULES,
    PROCESS,
    RULE,
    Value,
)
from trio_npu_dra.simulator.state_file import StateFile, device_positions, element

ANY_FUNCTION = "*"
"""As the function of a rule: every function."""


class Presence(IntEnum):
    """What is left of a chip; the next `dcmi_init` lists a silent one as card -1."""

    PRESENT = 0
    GONE = 1
    BOOTING = 2
    SILENT = 3


class Severity(IntEnum):
    """Of a fault; from minor on it shows in the device's health."""

    WARNING = 0
    MINOR = 1
    MAJOR = 2
    CRITICAL = 3


class Assertion(IntEnum):
    """What a fault event says."""

    RECOVERY = 0
    OCCURRENCE = 1
    NOTICE = 2


@cache
def simulated_functions() -> frozenset[str]:
    """The `dcmi_*` functions of the simulated library, read from its source."""
    found: set[str] = set()
    for source in Path(__file__).parent.glob("*.c"):
        found.update(re.findall(r"^EXPORT int (dcmi_\w+)\(", source.read_text(), re.MULTILINE))
    return frozenset(found)


class BoardControl:
    """A handle on one board; devices are named by physical id.

    Args:
        state_file: `SimulatedBoard.state_file`.

    Raises:
        ConfigError: It is not a state file of this version.
    """

    def __init__(self, state_file: Path) -> None:
        self._file = StateFile(state_file)
        with self._file.locked():
            self._positions = device_positions(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back; the board stays as it is."""
        self._file.close()

    @property
    def devices(self) -> list[int]:
        """The physical ids of all chips of the board, gone or not."""
        return list(self._positions)

    # --- what chips measure -----------------------------------------------------------------------

    def read(self, device: int, name: str) -> Value:
        """One member of a device's record, by its name in `state.h`."""
        with self._file.locked():
            return self._file.get(DEVICE, self._position(device), name)

    def set_temperature(self, device: int, celsius: int) -> None:
        """Heat or cool a chip."""
        self._put(device, temperature=celsius, hbm_temperature=celsius)

    def set_power(self, device: int, watts: float) -> None:
        """Set the power draw (kept in 0.1 W)."""
        self._put(device, power=round(watts * 10))

    def set_hbm_used(self, device: int, megabytes: int) -> None:
        """Set how much HBM is in use."""
        self._put(device, hbm_used=megabytes)

    def set_utilization(self, device: int, kind: int, percent: int) -> None:
        """Set one of DCMI's utilisation types: 2 is AI cores, 6 HBM, 10 its bandwidth, 13 all."""
        with self._file.locked():
            place = element(DEVICE, "utilization", kind, self._position(device))
            self._file.write(place, percent.to_bytes(4, sys.byteorder))

    def set_processes(self, device: int, processes: Sequence[tuple[int, int]]) -> None:
        """Set the processes on a chip: pid and bytes of memory each.

        Raises:
            ConfigError: More than the file holds.
        """
        if len(processes) > MAX_PROCESSES:
            raise ConfigError(f"{len(processes)} processes: at most {MAX_PROCESSES} on a device")
        packed = b"".join(PROCESS.pack({"pid": pid, "memory": size}) for pid, size in processes)
        with self._file.locked():
            base = self._position(device)
            self._file.write(element(DEVICE, "processes", 0, base), packed)
            self._file.put(DEVICE, base, "process_count", len(processes))

    def set_ecc_errors(self, device: int, *, single: int, double: int) -> None:
        """Set the counts of corrected and uncorrected HBM errors."""
        self._put(device, ecc_single=single, ecc_double=double)

    def set_share(self, device: int, *, enabled: bool) -> None:
        """Allow several containers on the chip, as `dcmi_set_device_share_enable` does."""
        self._put(device, share_enable=int(enabled))

    def set_multi_die_policy(self, *, independent: bool) -> None:
        """Set whether a die may be used without its sister (boards with two dies a card)."""
        with self._file.locked():
            self._file.put(FACTS, 0, "multi_die_policy", int(independent))

    # --- health -----------------------------------------------------------------------------------

    def set_health(self, device: int, severity: Severity) -> None:
        """Set the health a chip has besides its faults; the worst of both is reported."""
        self._put(device, health=severity)

    def set_driver_health(self, severity: Severity) -> None:
        """Set the health of the driver itself."""
        with self._file.locked():
            self._file.put(FACTS, 0, "driver_health", severity)

    def set_network_health(self, device: int, status: int) -> None:
        """Set the RoCE port's health: 0 fine, 3 unreachable, 6 starting."""
        self._put(device, network_health=status)

    def set_gone(self, device: int) -> None:
        """Let a chip drop off the bus: health succeeds with "unknown", all else fails."""
        self._put(device, presence=Presence.GONE)

    def set_booting(self, device: int) -> None:
        """Let a chip start: every call says "not ready"."""
        self._put(device, presence=Presence.BOOTING)

    def set_silent(self, device: int) -> None:
        """Let a chip not answer: the next `dcmi_init` lists its card as -1."""
        self._put(device, presence=Presence.SILENT)

    def restore(self, device: int) -> None:
        """Make a chip present and healthy again, without faults; sends no events."""
        self._put(device, presence=Presence.PRESENT, health=0, fault_count=0)

    def add_fault(self, device: int, code: int, severity: Severity) -> None:
        """List a fault code on a chip and tell every subscriber of its occurrence.

        Raises:
            ConfigError: The chip has as many faults as DCMI can list.
        """
        now = time.time_ns() // 1_000_000
        with self._file.locked():
            base = self._position(device)
            count = self._file.number(DEVICE, base, "fault_count")
            if count == MAX_FAULTS:
                raise ConfigError(f"device {device} has {MAX_FAULTS} faults already")
            fault = FAULT.pack({"code": code, "severity": severity, "raised_ms": now})
            self._file.write(element(DEVICE, "faults", count, base), fault)
            self._file.put(DEVICE, base, "fault_count", count + 1)
            self._append_event(device, code, severity, Assertion.OCCURRENCE, now)

    def clear_fault(self, device: int, code: int) -> None:
        """Take a fault off a chip's list and tell every subscriber of the recovery.

        Raises:
            ConfigError: The chip does not have that fault.
        """
        with self._file.locked():
            base = self._position(device)
            faults = self._faults(base)
            index = next((i for i, fault in enumerate(faults) if fault[0] == code), None)
            if index is None:
                raise ConfigError(f"device {device} has no fault {code:08X}")
            _, severity, raised = faults.pop(index)
            packed = (
                FAULT.pack({"code": c, "severity": s, "raised_ms": at}) for c, s, at in faults
            )
            self._file.write(element(DEVICE, "faults", 0, base), b"".join(packed))
            self._file.put(DEVICE, base, "fault_count", len(faults))
            # A recovery carries the time of the occurrence, as on real hardware.
            self._append_event(device, code, Severity(severity), Assertion.RECOVERY, raised)

    def emit_event(
        self, device: int, code: int, severity: Severity, assertion: Assertion = Assertion.NOTICE
    ) -> None:
        """Send an event that changes nothing: a notice, or a recovery ahead of its code's end."""
        with self._file.locked():
            self._append_event(device, code, severity, assertion, time.time_ns() // 1_000_000)

    # --- calls that go wrong ----------------------------------------------------------------------

    def set_return_code(self, function: str, code: int, device: int | None = None) -> None:
        """Let calls of a function return *code*, on one device or (None) at all.

        Raises:
            ConfigError: The library has no such function.
        """
        self._rule(function, device, code=code)

    def set_delay(self, function: str, milliseconds: int, device: int | None = None) -> None:
        """Let calls of a function take longer."""
        self._rule(function, device, delay_ms=milliseconds)

    def hang(self, function: str = ANY_FUNCTION, device: int | None = None) -> None:
        """Let calls of a function not return until `release`."""
        self._rule(function, device, hang=1)

    def release(self, function: str = ANY_FUNCTION, device: int | None = None) -> None:
        """End what `set_return_code`, `set_delay` or `hang` began for the same arguments."""
        with self._file.locked():
            place = self._find_rule(function, -1 if device is None else device)
            self._file.put(RULE, place, "active", 0)

    # --- parts, called with the file locked -------------------------------------------------------

    def _position(self, device: int) -> int:
        try:
            return self._positions[device]
        except KeyError:
            known = ", ".join(map(str, self._positions))
            raise ConfigError(f"no device {device} on this board; it has {known}") from None

    def _faults(self, base: int) -> list[tuple[int, int, int]]:
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

    def _find_rule(self, function: str, device: int) -> int:
        """The place of the rule for these arguments, else of a free one.

        Raises:
            ConfigError: There is neither.
        """
        free = None
        for place in (element(BOARD, "rules", index) for index in range(MAX_RULES)):
            active = self._file.number(RULE, place, "active") == 1
            named = self._file.get(RULE, place, "function") == function
            if active and named and self._file.number(RULE, place, "physical_id") == device:
                return place
            if free is None and not active:
                free = place
        if free is None:
            raise ConfigError(f"{MAX_RULES} rules for functions are in use; release some")
        return free

    # --- parts that lock --------------------------------------------------------------------------

    def _put(self, device: int, **values: Value) -> None:
        with self._file.locked():
            for name, value in values.items():
                self._file.put(DEVICE, self._position(device), name, value)

    def _rule(self, function: str, device: int | None, **values: int) -> None:
        if function != ANY_FUNCTION and function not in simulated_functions():
            raise ConfigError(f"the simulated library has no function {function!r}")
        with self._file.locked():
            if device is not None:
                self._position(device)
            physical_id = -1 if device is None else device
            place = self._find_rule(function, physical_id)
            rule: dict[str, Value] = {"function": function, "physical_id": physical_id, "active": 1}
            self._file.write(place, RULE.pack(rule | values))
