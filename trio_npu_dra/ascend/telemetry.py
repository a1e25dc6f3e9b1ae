"""An NPU's temperature, power and load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar, TypeVarTuple

from trio_npu_dra.ascend.chip import read_memory
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import Chip

DEADLINE_SECONDS: Final = 1.0
_MIB: Final = 1024 * 1024
_NO_VALUE: Final = 0x7FFD  # this and above: the sensor has none

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What an NPU measured at one moment; None where it has no value.

    Attributes:
        temperature_celsius: Of the chip.
        power_watts: Its own; on 310P that of its card, with all chips of the card.
        ai_core_ratio: Share of time in which the AI cores work, 0 to 1.
        memory_used_bytes: Of its device memory.
    """

    temperature_celsius: float | None = None
    power_watts: float | None = None
    ai_core_ratio: float | None = None
    memory_used_bytes: int | None = None


async def read_telemetry(worker: DcmiWorker, dcmi: Dcmi, chip: Chip) -> Telemetry:
    """Read a chip's telemetry, in one job of the worker.

    Raises:
        Busy: It does not answer in time, or an earlier call on it has not returned.
        NotReady: The worker is closed, or too many calls have not returned.
    """
    return await worker.call(_read, dcmi, chip, device=chip.ref, deadline_seconds=DEADLINE_SECONDS)


def _read(dcmi: Dcmi, chip: Chip) -> Telemetry:
    celsius = _known(_measured(dcmi.temperature, chip.ref))
    deciwatts = _known(_measured(dcmi.power, chip.ref))
    if deciwatts is None:
        deciwatts = _known(_measured(dcmi.card_power, chip.ref))
    percent = _measured(dcmi.ai_core_utilization, chip.ref)
    memory = _measured(read_memory, dcmi, chip)
    return Telemetry(
        temperature_celsius=celsius,
        power_watts=deciwatts / 10 if deciwatts is not None else None,
        ai_core_ratio=percent / 100 if percent is not None else None,
        memory_used_bytes=memory.used_mib * _MIB if memory else None,
    )


def _measured(read: Callable[[*Ts], T], *arguments: *Ts) -> T | None:
    try:
        return read(*arguments)
    except DcmiError:
        return None


def _known(reading: int | None) -> int | None:
    return reading if reading is not None and reading < _NO_VALUE else None
