"""How one NPU is, as DCMI tells it now."""

from __future__ import annotations

import logging
from typing import Final

from trio_npu_dra.errors import DcmiError, DeviceLost, NotReady
from trio_npu_dra.npu.dcmi.client import GONE, Address, Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.model import HealthState, NpuHealth

log = logging.getLogger(__name__)

_MINOR: Final = 1
_BOOT_PHASES: Final = {0: "not started", 1: "in its BIOS", 2: "starting its system"}

_LOST: Final = NpuHealth(
    state=HealthState.UNHEALTHY, message="the chip does not exist any more, or has not started"
)


async def ask_health(worker: DcmiWorker, dcmi: Dcmi, address: Address) -> NpuHealth:
    """Read the health of a chip; one that cannot be asked is unknown, never unhealthy."""
    try:
        return await worker.call(_read_health, dcmi, address, device=address)
    except DcmiError as error:
        return NpuHealth(state=HealthState.UNKNOWN, message=str(error))


def _read_health(dcmi: Dcmi, address: Address) -> NpuHealth:
    try:
        worst_alarm = dcmi.health(address)
    except DeviceLost:
        return _LOST
    except NotReady:
        message = f"the chip is {_boot_phase(dcmi, address)}"
        return NpuHealth(state=HealthState.UNKNOWN, message=message)
    if worst_alarm == GONE:
        return _LOST
    codes = _error_codes(dcmi, address)
    return NpuHealth(
        state=HealthState.HEALTHY if worst_alarm <= _MINOR else HealthState.UNHEALTHY,
        codes=codes,
        message="; ".join(_describe(dcmi, address, code) for code in codes),
    )


def _boot_phase(dcmi: Dcmi, address: Address) -> str:
    try:
        return _BOOT_PHASES.get(dcmi.boot_status(address), "not ready")
    except DcmiError:
        return "not ready"


def _error_codes(dcmi: Dcmi, address: Address) -> tuple[int, ...]:
    """Active codes, ascending; without them the health value alone decides."""
    try:
        return tuple(sorted(set(dcmi.error_codes(address))))
    except DcmiError as error:
        log.debug("error codes not read", extra={"address": address, "error": str(error)})
        return ()


def _describe(dcmi: Dcmi, address: Address, code: int) -> str:
    """A code with the vendor's words, if there are any."""
    try:
        return f"{code:08X} {dcmi.error_text(address, code)}".strip()
    except DcmiError:
        return f"{code:08X}"
