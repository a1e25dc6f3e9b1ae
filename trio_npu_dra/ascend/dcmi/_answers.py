"""Out-parameters of calls into libdcmi.so as plain values.

Out-structs get 256 bytes to spare, because newer libraries write longer ones.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any, Final, TypeVar

from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.types import NONE, Assertion, FaultEvent, Resources, Severity

_SPARE_BYTES: Final = 256

S = TypeVar("S", bound=ctypes.Structure)
E = TypeVar("E", bound=IntEnum)


def spacious(struct: type[S]) -> S:
    """A zeroed struct with spare bytes behind it."""
    return struct.from_buffer(bytearray(ctypes.sizeof(struct) + _SPARE_BYTES))


def text(raw: bytes) -> str:
    """A C string, which ctypes cut at its NUL, without padding.

    Bytes not of UTF-8 and what cannot be printed are replaced: it goes into logs, Events, slices.
    """
    words = raw.decode(errors="replace").strip()
    return "".join(one if one.isprintable() else "\ufffd" for one in words)


def a_count() -> ctypes.c_int:
    """Room for a count; `counted` refuses it if the library does not write it."""
    return ctypes.c_int(-1)


def counted(count: ctypes.c_int, limit: int, function: str) -> int:
    """The count of things that the library returned, after a check.

    Raises:
        DcmiError: The count is impossible.
    """
    if not 0 <= count.value <= limit:
        raise DcmiError(0, function, f"a count of {count.value}, where 0 to {limit} can be")
    return count.value


def known(kind: type[E], number: int) -> E | None:
    """A number as *kind*; None when the vendor has added one."""
    try:
        return kind(number)
    except ValueError:
        return None


def fault_event(raw: Any) -> FaultEvent:
    """The vendor's struct as our value."""
    return FaultEvent(
        logic_id=raw.deviceid,
        code=raw.event_id,
        severity=known(Severity, raw.severity),
        assertion=known(Assertion, raw.assertion),
        raised_at=raw.alarm_raised_time / 1000,
    )


def resources(computing: Any, media: Any) -> Resources:
    """The vendor's structs as our value; the library fills unknown numbers with ones."""
    return Resources(
        ai_cores=_units(computing.aic),
        ai_cpus=_units(computing.device_aicpu, unknown=0xFFFF),
        memory_mib=_units(computing.memory_size),
        vpc=_units(media.vpc),
        venc=_units(media.venc),
        vdec=_units(media.vdec),
        jpegd=_units(media.jpegd),
        jpege=_units(media.jpege),
        pngd=_units(2 * media.pngd),
    )


def _units(number: float, *, unknown: int = NONE) -> int | None:
    """Whole units, rounded down; None for "unknown" and for impossible numbers."""
    return int(number) if 0 <= number < unknown else None  # NaN is no such number
