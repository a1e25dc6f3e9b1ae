"""When taints were added: the API server's answer is kept as long as the taint stays; pure.

The time decides when a pod that tolerates a taint for a while is evicted, so a write for another
reason must not move it. Times are compared with each other only, never with a clock: it does not
matter what the node's clock or the API server's says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain

from trio_npu_dra.kube.objects import Device, DeviceTaint, ResourceSlice, rfc3339

_TOLERANCE = timedelta(seconds=1)
"""The API server cuts to whole seconds where we round."""


def with_known_times(
    devices: tuple[Device, ...], found: Iterable[ResourceSlice]
) -> tuple[Device, ...]:
    """The devices, with the stored times of the taints that are there already.

    A taint without a time takes the stored one whatever it is, one with a time takes it when both
    are a second apart at most.
    """
    stored = {
        device.name: device
        for device in chain.from_iterable(item.spec.devices or () for item in found)
    }
    return tuple(with_times_of(stored.get(device.name), device) for device in devices)


def with_times_of(known: Device | None, device: Device) -> Device:
    """The device, with the times of equal taints of the *known* one."""
    if not device.taints:
        return device
    times = {_identity(taint): taint.time_added for taint in (known and known.taints) or ()}
    taints = tuple(_timed(taint, times) for taint in device.taints)
    return device.model_copy(update={"taints": taints})


def untimed(device: Device) -> Device:
    """The device without the times of its taints."""
    taints = tuple(taint.model_copy(update={"time_added": None}) for taint in device.taints or ())
    return device.model_copy(update={"taints": taints or None})


def _timed(taint: DeviceTaint, known: Mapping[tuple[str, str, str], str | None]) -> DeviceTaint:
    stored, wanted = known.get(_identity(taint)), taint.time_added
    if wanted is not None and not _is_close(wanted, stored):
        stored = rfc3339(_rounded(wanted).timestamp())
    return taint.model_copy(update={"time_added": stored})


def _is_close(wanted: str, stored: str | None) -> bool:
    if stored is None:
        return False
    try:
        return abs(_rounded(stored) - _rounded(wanted)) <= _TOLERANCE
    except (ValueError, OverflowError):  # somebody wrote the year 0, which the API server takes
        return False


def _rounded(text: str) -> datetime:
    moment = datetime.fromisoformat(text).astimezone(UTC) + timedelta(milliseconds=500)
    return moment.replace(microsecond=0)


def _identity(taint: DeviceTaint) -> tuple[str, str, str]:
    return taint.key, taint.value or "", taint.effect
