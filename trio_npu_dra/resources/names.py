"""Names of resources and ids of their devices, as Huawei's device plugin has them; pure.

An id is the resource's last part and the chip's physical id: `Ascend910-3`. That plugin adds a part
for shares (`Ascend310P-0-99`), and has ids of vNPUs (`Ascend910-2c-100-0`: type, vNPU id, physical
id); we hand out neither, but pods that were started by it may have them. Its ids of `npu-core`,
vNPUs that it makes when a pod starts, name no chip.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from trio_npu_dra.npu.model import ChipFamily

DOMAIN: Final = "huawei.com"

USUAL: Final[Mapping[ChipFamily, str]] = MappingProxyType(
    {
        ChipFamily.ASCEND_310: f"{DOMAIN}/Ascend310",
        ChipFamily.ASCEND_310B: f"{DOMAIN}/Ascend310",
        ChipFamily.ASCEND_310P: f"{DOMAIN}/Ascend310P",
        ChipFamily.ASCEND_910: f"{DOMAIN}/Ascend910",
        ChipFamily.ASCEND_910B: f"{DOMAIN}/Ascend910",
        ChipFamily.ASCEND_910_A3: f"{DOMAIN}/Ascend910",
        ChipFamily.ASCEND_950: f"{DOMAIN}/npu",
    }
)
"""The resource of each family, as manifests have it today."""

_MADE_LATER: Final = f"{DOMAIN}/npu-core"
_PIECE: Final = re.compile(r"Ascend[0-9A-Z]+-[0-9]+c.*")


def device_id(resource: str, physical_id: int) -> str:
    """The id of a chip in a resource."""
    return f"{_last(resource)}-{physical_id}"


def physical_id(resource: str, id_: str) -> int | None:
    """The chip that a device is, or is a part of; None if the id is of another form."""
    last = _last(resource)
    tail = id_.removeprefix(f"{last}-")
    if tail == id_ or resource == _MADE_LATER:
        return None
    if resource.startswith(f"{DOMAIN}/") and _PIECE.fullmatch(last):
        match = re.fullmatch(r"\d{1,9}-(\d{1,9})", tail)
    else:
        match = re.fullmatch(r"(\d{1,9})(?:-\d{1,9})?", tail)
    return int(match[1]) if match else None


def is_huaweis(resource: str) -> bool:
    """Whether it is a resource of Huawei's device plugin, which may have been here before."""
    return resource.startswith(f"{DOMAIN}/")


def _last(resource: str) -> str:
    return resource.rpartition("/")[2]
