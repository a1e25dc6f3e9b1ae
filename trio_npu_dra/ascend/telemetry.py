"""What an NPU measures: temperatures, power, load, memory, errors of its HBM, its HCCS links."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final, TypeVar, TypeVarTuple

from trio_npu_dra.ascend.chip import read_memory
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.dcmi.types import ChipRef, EccCounts, Memory
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.ascend.traits import TRAITS

DEADLINE_SECONDS: Final = 1.0
"""For one call."""

BUDGET_SECONDS: Final = 0.5
"""After this no further call is made on a chip: it is slow, and its health must be read, too."""

UNSUPPORTED_SECONDS: Final = 600.0
"""Between two tries of what a chip does not support; it may do so once it is not split any more."""

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
        ai_cpu_ratio: The same of the AI CPUs.
        vector_core_ratio: The same of the vector cores.
        memory_used_bytes: Of its device memory.
        hbm_temperature_celsius: Of its HBM.
        hbm_bandwidth_ratio: Share of the HBM's bandwidth in use, 0 to 1.
        hbm_errors: That ECC found in its HBM.
        hccs_up: Whether all its HCCS links are up.
    """

    temperature_celsius: float | None = None
    power_watts: float | None = None
    ai_core_ratio: float | None = None
    ai_cpu_ratio: float | None = None
    vector_core_ratio: float | None = None
    memory_used_bytes: int | None = None
    hbm_temperature_celsius: float | None = None
    hbm_bandwidth_ratio: float | None = None
    hbm_errors: EccCounts | None = None
    hccs_up: bool | None = None


class TelemetryReader:
    """Reads the telemetry of chips, and seldom asks a chip for what it does not support."""

    def __init__(self, worker: DcmiWorker, dcmi: Dcmi) -> None:
        self._worker = worker
        self._dcmi = dcmi
        self._unsupported: dict[tuple[ChipRef, str], float] = {}  # until when
        self._errors: dict[ChipRef, deque[EccCounts]] = {}
        # Calls that had a value when they were last made: they may be unsupported by mistake once.
        self._answered: set[tuple[ChipRef, str]] = set()

    async def read(self, chip: Chip) -> Telemetry:
        """Read a chip's telemetry; what does not come in time is None.

        Each call is a job of its own, so whoever reads health meanwhile waits for one call.
        """
        dcmi, ref = self._dcmi, chip.ref
        ask = partial(self._ask, ref, monotonic() + BUDGET_SECONDS)
        celsius = _known(await ask(dcmi.temperature, ref))
        deciwatts = _known(await ask(dcmi.power, ref))
        if deciwatts is None:
            deciwatts = _known(await ask(dcmi.card_power, ref))
        ai_cores = await ask(dcmi.ai_core_utilization, ref)
        memory = await ask(read_memory, dcmi, chip)
        hbm_errors = self._sure(ref, await ask(dcmi.hbm_errors, ref))
        hccs_up = None
        if TRAITS[chip.family].has_hccs(chip.board_id):  # boards without it report one, too (DCMI)
            hccs_up = await ask(dcmi.is_hccs_up, ref)
        ai_cpus = await ask(dcmi.ai_cpu_utilization, ref)
        vector_cores = await ask(dcmi.vector_core_utilization, ref)
        return Telemetry(
            temperature_celsius=celsius,
            power_watts=deciwatts / 10 if deciwatts is not None else None,
            ai_core_ratio=_ratio(ai_cores),
            ai_cpu_ratio=_ratio(ai_cpus),
            vector_core_ratio=_ratio(vector_cores),
            memory_used_bytes=_used(memory) if memory else None,
            hbm_temperature_celsius=_known(memory.temperature) if memory else None,
            hbm_bandwidth_ratio=_ratio(memory.bandwidth_percent) if memory else None,
            hbm_errors=hbm_errors,
            hccs_up=hccs_up,
        )

    def _sure(self, ref: ChipRef, errors: EccCounts | None) -> EccCounts | None:
        """The counts in the middle of the last three: one odd answer is no new errors."""
        if errors is None:
            self._errors.pop(ref, None)
            return None
        last = self._errors.setdefault(ref, deque(maxlen=3))
        last.append(errors)
        return EccCounts(*map(_middle, zip(*last, strict=True)))

    async def _ask(
        self, ref: ChipRef, until: float, read: Callable[[*Ts], T], *arguments: *Ts
    ) -> T | None:
        call, now = (ref, read.__name__), monotonic()
        if now >= until or now < self._unsupported.get(call, 0):
            return None
        try:
            found = await self._worker.call(
                read, *arguments, device=ref, deadline_seconds=DEADLINE_SECONDS
            )
        except NotSupported:
            if call not in self._answered:
                self._unsupported[call] = now + UNSUPPORTED_SECONDS
            self._answered.discard(call)
        except DcmiError:
            pass  # the worker's log and other metrics show it
        else:
            self._answered.add(call)
            return found
        return None


def _middle(counts: Iterable[int | None]) -> int | None:
    known = sorted(count for count in counts if count is not None)
    return known[(len(known) - 1) // 2] if known else None


def _used(memory: Memory) -> int | None:
    return memory.used_mib * _MIB if 0 <= memory.used_mib <= memory.size_mib else None


def _known(reading: int | None) -> int | None:
    return reading if reading is not None and reading < _NO_VALUE else None


def _ratio(percent: int | None) -> float | None:
    return percent / 100 if percent is not None and 0 <= percent <= 100 else None
