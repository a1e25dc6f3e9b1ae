"""What one NPU says of its health now."""

from __future__ import annotations

import logging
from typing import Final

from trio_npu_dra.errors import DcmiError, DeviceLost, NotReady, NotSupported
from trio_npu_dra.npu.chip_faults import Reading
from trio_npu_dra.npu.dcmi.client import GONE, Address, Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.faults import Severity

log = logging.getLogger(__name__)

DEADLINE_SECONDS: Final = 2.0
NETWORK_DEADLINE_SECONDS: Final = 1.0  # it blocks long on a dropped card
_BOOT_PHASES: Final = {0: "not started", 1: "in its BIOS", 2: "starting its system"}
_NETWORK_FINE: Final = frozenset({0, 6})  # 6: being set up
_NETWORK_STATES: Final = {
    1: "socket failed",
    2: "receive timed out",
    3: "unreachable",
    4: "detection time exceeded",
    5: "fault",
    7: "detection failed",
    8: "address being set",
}


async def read_chip(worker: DcmiWorker, dcmi: Dcmi, address: Address) -> Reading:
    """Look at a chip; one that cannot be asked is unmonitored, never unhealthy."""
    try:
        return await worker.call(
            read_health, dcmi, address, device=address, deadline_seconds=DEADLINE_SECONDS
        )
    except DcmiError as error:
        return Reading(unmonitored=str(error))


async def read_network(
    worker: DcmiWorker, dcmi: Dcmi, address: Address, *, known: str = ""
) -> str | None:
    """What is wrong with a chip's RoCE port: empty when nothing is known to be.

    Args:
        worker: Runs the call.
        dcmi: The library.
        address: The chip.
        known: What was known; it stands when the port does not tell.

    Returns:
        None where the chip has no such port.
    """
    try:
        state = await worker.call(
            dcmi.network_health,
            address,
            device=("network", address),
            deadline_seconds=NETWORK_DEADLINE_SECONDS,
        )
    except NotSupported:
        return None
    except DcmiError as error:
        log.debug("network health not read", extra={"chip": address, "error": str(error)})
        return known
    if state in _NETWORK_FINE:
        return ""
    return f"RoCE port: {_NETWORK_STATES.get(state, 'unknown state')} ({state})"


def read_health(dcmi: Dcmi, address: Address) -> Reading:
    """Ask one chip for its health and fault codes; blocks, and hangs where the chip hangs.

    Raises:
        DcmiError: It gave no answer that counts.
    """
    try:
        worst_alarm = dcmi.health(address)
    except DeviceLost:
        return Reading(gone=True)
    except NotReady:
        return Reading(unmonitored=f"the chip is {_boot_phase(dcmi, address)}")
    if worst_alarm == GONE:
        return Reading(gone=True)
    severity = Severity(min(worst_alarm, Severity.CRITICAL))
    return Reading(codes=_codes(dcmi, address), severity=severity)


def _boot_phase(dcmi: Dcmi, address: Address) -> str:
    try:
        return _BOOT_PHASES.get(dcmi.boot_status(address), "not ready")
    except DcmiError:
        return "not ready"


def _codes(dcmi: Dcmi, address: Address) -> dict[int, str] | None:
    """Active codes with the vendor's words; None when they cannot be read."""
    try:
        return {code: _text(dcmi, address, code) for code in dcmi.error_codes(address)}
    except DcmiError as error:
        log.debug("error codes not read", extra={"chip": address, "error": str(error)})
        return None


def _text(dcmi: Dcmi, address: Address, code: int) -> str:
    try:
        return dcmi.error_text(address, code)
    except DcmiError:
        return ""
