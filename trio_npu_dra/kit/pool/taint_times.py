"""The times at which taints were added; pure.

A taint keeps the time that the API server gave it. The time decides when a pod is evicted that
tolerates the taint for a while, so a write for another reason must not move it. Times are compared
only with each other: the clocks of the node and of the API server do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from trio_npu_dra.kit.api.objects import Device, DeviceTaint, ResourceSlice, rfc3339

_TOLERANCE = timedelta(seconds=1)
"""The API server truncates to whole seconds, and this module rounds."""


def with_known_times(
    devices: tuple[Device, ...], found: Iterable[ResourceSlice]
) -> tuple[Device, ...]:
    """The devices, with the times of the equal taints in the slices that were *found*."""
    stored = {device.name: device for item in found for device in item.spec.devices}
    return tuple(with_times_of(stored.get(device.name), device) for device in devices)


def with_times_of(known: Device | None, device: Device) -> Device:
    """The device, with the times of equal taints of the *known* one.

    A taint without a time takes the known one; a taint with a time does if they differ by a second
    at most.
    """
    if not device.taints:
        return device
    times = {_identity(taint): taint.time_added for taint in (known.taints if known else ())}
    taints = []
    for taint in device.taints:
        stored, wanted = times.get(_identity(taint)), taint.time_added
        if wanted is not None and not _is_close(wanted, stored):
            stored = rfc3339(_rounded(wanted).timestamp())
        taints.append(taint.model_copy(update={"time_added": stored}))
    return device.model_copy(update={"taints": tuple(taints)})


def untimed(device: Device) -> Device:
    """The device without the times of its taints."""
    taints = tuple(taint.model_copy(update={"time_added": None}) for taint in device.taints)
    return device.model_copy(update={"taints": taints})


def _is_close(wanted: str, stored: str | None) -> bool:
    if stored is None:
        return False
    try:
        return abs(_rounded(stored) - _rounded(wanted)) <= _TOLERANCE
    except (ValueError, OverflowError):  # the year 0, written by hand: the API server accepts it
        return False


def _rounded(text: str) -> datetime:
    moment = datetime.fromisoformat(text).astimezone(UTC) + timedelta(milliseconds=500)
    return moment.replace(microsecond=0)


def _identity(taint: DeviceTaint) -> tuple[str, str, str]:
    return taint.key, taint.value or "", taint.effect
