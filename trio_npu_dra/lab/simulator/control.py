"""Changes a simulated board while others use it, from this or any other process.

Every operation is one change: readers see all of it or nothing, because both sides lock the state
file. Waiting readers see it at once (the library watches the file).
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.lab.simulator.fault_control import FaultControl, Severity
from trio_npu_dra.lab.simulator.initial_state import address_values
from trio_npu_dra.lab.simulator.layout import (
    BOARD,
    DEVICE,
    FACTS,
    MAX_PROCESSES,
    NONE,
    PROCESS,
    Value,
)
from trio_npu_dra.lab.simulator.rule_control import RuleControl, check_function
from trio_npu_dra.lab.simulator.state_file import element
from trio_npu_dra.lab.simulator.vnpu_control import VnpuControl


class Presence(IntEnum):
    """How much of a chip is there; the next `dcmi_init` lists a silent one as card -1."""

    PRESENT = 0
    GONE = 1
    BOOTING = 2
    SILENT = 3


class BoardControl(FaultControl, RuleControl, VnpuControl):
    """A handle on one board; devices are named by physical id.

    Args:
        state_file: `SimulatedBoard.state_file`.

    Raises:
        ConfigError: It is not a state file of this version.
    """

    @property
    def calls_beside_init(self) -> int:
        """Calls that overlapped with `dcmi_init`.

        The vendor's library keeps its cards in unlocked globals that `dcmi_init` writes: such a
        call may crash there. Here it gets an answer, and counts if the process may write the state.
        """
        with self._file.locked():
            return self._file.number(BOARD, 0, "calls_beside_init")

    # --- what chips measure -----------------------------------------------------------------------

    def set_temperature(self, device: int, celsius: int) -> None:
        """Heat or cool a chip."""
        self._put(device, temperature=celsius, hbm_temperature=celsius)

    def set_power(self, device: int, watts: float) -> None:
        """Set the power draw (kept in 0.1 W); of the whole card where its MCU reports it (310P)."""
        with self._file.locked():
            by_mcu = self._file.number(FACTS, 0, "power_by_mcu") == 1
            for chip in self._card_of(device) if by_mcu else [device]:
                self._put_locked(chip, power=round(watts * 10))

    def set_hbm_used(self, device: int, megabytes: int) -> None:
        """Set the amount of HBM in use."""
        self._put(device, hbm_used=megabytes)

    def set_utilization(self, device: int, kind: int, percent: int) -> None:
        """Set one of DCMI's utilisation types: 2 is AI cores, 6 HBM, 10 its bandwidth, 13 all."""
        with self._file.locked():
            place = element(DEVICE, "utilization", kind, self._position(device))
            self._file.write(place, percent.to_bytes(4, sys.byteorder))

    def set_processes(self, device: int, processes: Sequence[tuple[int, int]]) -> None:
        """Set the processes on a chip: pid and bytes of memory each.

        Raises:
            ConfigError: There are more than the file holds.
        """
        if len(processes) > MAX_PROCESSES:
            raise ConfigError(f"{len(processes)} processes: at most {MAX_PROCESSES} on a device")
        packed = b"".join(PROCESS.pack({"pid": pid, "memory": size}) for pid, size in processes)
        with self._file.locked():
            base = self._position(device)
            self._file.write(element(DEVICE, "processes", 0, base), packed)
            self._file.put(DEVICE, base, "process_count", len(processes))

    def set_ecc_errors(self, device: int, *, single: int, double: int) -> None:
        """Set the counts of corrected and uncorrected errors of the chip's memory."""
        self._put(device, ecc_single=single, ecc_double=double)

    # --- policies ---------------------------------------------------------------------------------

    def set_share(self, device: int, *, enabled: bool) -> None:
        """Allow several containers on the chip, as `dcmi_set_device_share_enable` does.

        An A3 card is shared as a whole.
        """
        with self._file.locked():
            has_dies = self._file.number(FACTS, 0, "multi_die_policy") != NONE
            for chip in self._card_of(device) if has_dies else [device]:
                self._put_locked(chip, share_enable=int(enabled))

    def set_multi_die_policy(self, *, independent: bool) -> None:
        """Set whether a die may be used without its sister (boards with two dies a card)."""
        with self._file.locked():
            self._file.put(FACTS, 0, "multi_die_policy", int(independent))

    # --- health -----------------------------------------------------------------------------------

    def set_health(self, device: int, severity: Severity) -> None:
        """Set a chip's health apart from its faults; the worst of both is reported."""
        self._put(device, health=severity)

    def force_health(self, device: int, severity: Severity | None) -> None:
        """Report this health whatever the faults are; None ends that."""
        self._put(device, forced_health=NONE if severity is None else severity)

    def set_network_health(self, device: int, status: int) -> None:
        """Set the RoCE port's health: 0 fine, 3 unreachable, 6 starting."""
        self._put(device, network_health=status)

    def set_address(
        self,
        device: int,
        address: IPv4Interface | IPv6Interface | None,
        gateway: IPv4Address | IPv6Address | None = None,
    ) -> None:
        """Give the RoCE port an address in place of the one that it has; None takes it away."""
        self._put(device, **address_values(address, gateway))

    def set_hccs_status(self, device: int, status: int) -> None:
        """Set the state of a chip's HCCS links: 0 to 2 starting, 3 up."""
        self._put(device, hccs_status=status)

    # --- presence ---------------------------------------------------------------------------------

    def set_gone(
        self, device: int, *, keeps_number: bool = False, blocks: Collection[str] = ()
    ) -> None:
        """Let a chip drop off the bus: health succeeds with "unknown", all other calls fail.

        Args:
            device: The chip.
            keeps_number: Whether the kernel still counts it. If so the next `dcmi_init` lists its
                card as -1 and other chips keep their logic ids; else its card is not listed, and
                logic ids close up.
            blocks: Functions that do not return on it until `release` or `restore`, as
                `dcmi_get_device_network_health` may block for long on a dropped card.
        """
        with self._file.locked():
            self._change_presence(device, Presence.GONE, blocks, keeps_number=int(keeps_number))
            for function in blocks:
                self._rule_locked(function, device, hang=1, until_change=1)

    def set_booting(self, device: int, *, answers: Collection[str] = ()) -> None:
        """Let a chip boot: calls return "not ready", except the functions in *answers*."""
        with self._file.locked():
            self._change_presence(device, Presence.BOOTING, answers)
            for function in answers:
                self._rule_locked(function, device, answers=1, until_change=1)

    def set_silent(self, device: int) -> None:
        """Silence a chip: the next `dcmi_init` lists its card as -1."""
        with self._file.locked():
            self._change_presence(device, Presence.SILENT)

    def replace_die(self, device: int) -> None:
        """Put another die in a chip's place: it goes by the same numbers, and has its own id."""
        with self._file.locked():
            words = self._file.get(DEVICE, self._position(device), "die")
            assert isinstance(words, tuple), "it has several words"
            self._put_locked(device, die=tuple(word ^ 1 for word in words))

    def restore(self, device: int) -> None:
        """Make a chip present and healthy again, without faults; sends no events."""
        with self._file.locked():
            self._change_presence(
                device, Presence.PRESENT, health=0, forced_health=NONE, fault_count=0
            )

    # --- parts, called with the file locked -------------------------------------------------------

    def _change_presence(
        self, device: int, presence: Presence, functions: Collection[str] = (), **values: Value
    ) -> None:
        """Set a chip's presence and the rules of *functions*, unless one of these is unknown."""
        for function in functions:
            check_function(function)
        self._end_rules_of_presence(device)
        self._put_locked(device, **({"keeps_number": 0} | values), presence=presence)

    def _card_of(self, device: int) -> list[int]:
        """The chips on a device's card, itself among them."""
        cards = {
            chip: self._file.number(DEVICE, place, "card_id")
            for chip, place in self._positions.items()
        }
        self._position(device)
        return [chip for chip, card in cards.items() if card == cards[device]]
