"""Read one chip's present health."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from trio_npu_dra.ascend.dcmi.client import GONE, MAX_ERROR_CODES, NO_SUCH_CHIP, Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, IdUnknown, NotReady, Slow
from trio_npu_dra.ascend.dcmi.types import ChipRef, Severity
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.port_faults import uboe_faults

log = logging.getLogger(__name__)

DEADLINE_SECONDS: Final = 2.0
NETWORK_DEADLINE_SECONDS: Final = 1.0  # it blocks long on a dropped card
_BOOT_PHASES: Final = {
    0: "not started",
    1: "in its BIOS",
    2: "starting its system",
    3: "starting its services",
}
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


async def read_chip(
    worker: DcmiWorker,
    dcmi: Dcmi,
    ref: ChipRef,
    *,
    is_urgent: Callable[[], bool] = lambda: False,
    on_late: Callable[[HealthSample], object] = lambda _: None,
) -> HealthSample:
    """Read a chip's health; a chip that cannot be read is unmonitored, never unhealthy.

    A reading that comes after a pending one was returned goes to *on_late*.
    """
    try:
        return await worker.call(
            read_health,
            dcmi,
            ref,
            device=ref,
            deadline_seconds=DEADLINE_SECONDS,
            is_urgent=is_urgent,
            on_late=on_late,
        )
    except DcmiError as error:
        return HealthSample(unmonitored=str(error), pending=isinstance(error, Slow))


async def read_network(
    worker: DcmiWorker,
    dcmi: Dcmi,
    ref: ChipRef,
    *,
    on_late: Callable[[str], object] = lambda _: None,
) -> str:
    """The problem of a chip's RoCE port; empty if it has none.

    An answer that comes after this has raised goes to *on_late*.

    Raises:
        NotSupported: The chip has no such port.
        DcmiError: The port's state cannot be read.
    """
    state = await worker.call(
        dcmi.network_health,
        ref,
        device=("network", ref),
        deadline_seconds=NETWORK_DEADLINE_SECONDS,
        on_late=lambda state: on_late(_network_problem(state)),
    )
    return _network_problem(state)


def _network_problem(state: int) -> str:
    if state in _NETWORK_FINE:
        return ""
    return f"RoCE port: {_NETWORK_STATES[state]} ({state})"


def read_health(dcmi: Dcmi, ref: ChipRef) -> HealthSample:
    """Read one chip's health and fault codes; blocks, and hangs if the chip hangs."""
    try:
        worst_alarm = dcmi.health(ref)
    except (IdUnknown, NotReady):
        return _absence(dcmi, ref)
    except DcmiError as error:
        return HealthSample(unmonitored=str(error))
    if worst_alarm == GONE:
        return _absence(dcmi, ref)
    if worst_alarm not in {*Severity}:
        return HealthSample(unmonitored=f"a health of {worst_alarm}, where 0 to 3 can be")
    severity = Severity(worst_alarm)
    try:
        codes = dcmi.error_codes(ref)
    except DcmiError as error:
        log.debug("error codes not read", extra={"chip": str(ref), "error": str(error)})
        return HealthSample(codes=None, severity=severity)
    return HealthSample(
        codes={code: _text(dcmi, ref, code) for code in codes} | uboe_faults(codes),
        is_full=len(codes) == MAX_ERROR_CODES,
        severity=severity,
    )


def _absence(dcmi: Dcmi, ref: ChipRef) -> HealthSample:
    """The sample of a chip without a health, which the library says in four ways.

    Each may stand for a chip that boots and for one that is gone. The boot status tells them
    apart: the Ascend driver has none of a chip that is gone (DCMI source,
    `dsmi_get_device_boot_status`). One that does not say that the chip boots is no reason to take
    it for dead in time.
    """
    try:
        status = dcmi.boot_status(ref)
    except NotReady:
        return HealthSample(unmonitored="the chip is not ready", booting=True)
    except DcmiError as error:
        if error.code in NO_SUCH_CHIP:
            return HealthSample(unmonitored="the Ascend driver knows no such chip", missing=True)
        return HealthSample(unmonitored=f"the chip tells no health, and no boot status: {error}")
    if status in _BOOT_PHASES:
        return HealthSample(unmonitored=f"the chip is {_BOOT_PHASES[status]}", booting=True)
    return HealthSample(unmonitored=f"the chip tells no health, and its boot status is {status}")


def _text(dcmi: Dcmi, ref: ChipRef, code: int) -> str:
    try:
        return dcmi.error_text(ref, code)
    except DcmiError:
        return ""
