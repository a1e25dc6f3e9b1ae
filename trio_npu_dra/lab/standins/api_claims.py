"""What the stand-in API server makes of the status of claims.

Read in pkg/apis/resource/validation and pkg/registry/resource/resourceclaim of 1.36.3.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from typing import Any

from trio_npu_dra.lab.standins.api_status import invalid

Wire = dict[str, Any]
_Device = tuple[str, str, str, str]

_DATA_BYTES = 10 << 10


def admit_claim(obj: Wire, old: Wire | None) -> None:
    """Drop the status of devices that are not allocated any more, and validate the rest.

    Args:
        obj: What was sent; changed in place.
        old: What is stored of it; None when it is created.

    Raises:
        ApiRefusal: It is invalid.
    """
    status = obj.get("status") or {}
    allocated = set(_allocated(status))
    ended = set(_allocated((old or {}).get("status") or {})) - allocated
    kept = [one for one in status.get("devices") or () if _device(one) not in ended]
    if kept:
        status["devices"] = kept
    else:
        status.pop("devices", None)
    for index, one in enumerate(kept):
        where = f"status.devices[{index}]"
        if _device(one) not in allocated:
            names = dict(zip(("Driver", "Pool", "Device", "ShareID"), _device(one), strict=True))
            what = json.dumps(names, separators=(",", ":"))
            why = f"Invalid value: {what}: must be an allocated device in the claim"
            raise invalid(obj, f"{where}: {why}")
        for place, why in _flaws(one):
            raise invalid(obj, f"{where}.{place}: {why}")


def _flaws(one: Wire) -> Iterator[tuple[str, str]]:
    for index, condition in enumerate(one.get("conditions") or ()):
        for field in ("lastTransitionTime", "reason"):
            if not condition.get(field):
                yield f"conditions[{index}].{field}", "Required value"
    for index, address in enumerate((one.get("networkData") or {}).get("ips") or ()):
        try:
            ipaddress.ip_interface(address)
        except ValueError:
            is_cidr = False
        else:
            is_cidr = "/" in address
        if not is_cidr:
            why = f'Invalid value: "{address}": must be a valid address in CIDR form'
            yield f"networkData.ips[{index}]", why
    if len(json.dumps(one.get("data"), separators=(",", ":"))) > _DATA_BYTES:
        yield "data", f"Too long: may not be more than {_DATA_BYTES} bytes"


def _allocated(status: Wire) -> Iterator[_Device]:
    devices = (status.get("allocation") or {}).get("devices") or {}
    return map(_device, devices.get("results") or ())


def _device(one: Wire) -> _Device:
    return one["driver"], one["pool"], one["device"], one.get("shareID", "")
