"""Names of resources and ids of their devices, as Huawei's device plugin has them; pure.

`Ascend910-3` is a chip: its resource's last part and its physical id. `Ascend310P-0-99` is a share
of one. A vNPU's resource says what it has of the chip: `Ascend910-2c-100-0` is vNPU 100 of chip 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.ascend.traits import TRAITS

DOMAIN: Final = "huawei.com"

USUAL: Final[Mapping[ChipFamily, str]] = MappingProxyType(
    {family: f"{DOMAIN}/{traits.resource}" for family, traits in TRAITS.items()}
)
"""The resource of each family, as manifests have it today."""

MADE_LATER: Final = f"{DOMAIN}/npu-core"
"""The resource of vNPUs that Huawei's plugin cuts when a pod starts; its ids name no chip."""

_NUMBER: Final = r"\d{1,9}"
_PARTITION: Final = re.compile(r"(.+)-\d{1,2}c(\.\d{1,2}cpu)?(\.\d{1,3}g)?(\.n?dvpp)?")
_TEMPLATE: Final = re.compile(
    r"vir(?P<cores>\d{2})(_(?P<cpus>\d{1,2})c)?(_(?P<memory>\d{1,3}g))?(_(?P<media>n?(m|dvpp)))?"
)
_MEDIA: Final = {"m": "dvpp", "nm": "ndvpp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDeviceId:
    """The id of a device, parsed."""

    physical_id: int  # the chip that it is, or is a part of
    share: int | None = None  # its number, if it is a share of the chip
    vnpu: int | None = None  # its id, if it is a vNPU of the chip

    def text(self, resource: str) -> str:
        """The id in a resource."""
        parts = (self.vnpu, self.physical_id, self.share)
        return "-".join([_last(resource), *(str(part) for part in parts if part is not None)])


def device_id(resource: str, physical_id: int) -> str:
    """The id of a whole chip in a resource."""
    return ResourceDeviceId(physical_id=physical_id).text(resource)


def parse_id(resource: str, id_: str) -> ResourceDeviceId | None:
    """Parse an id in a resource; None if it has another form."""
    last = _last(resource)
    tail = id_.removeprefix(f"{last}-")
    if tail == id_ or resource == MADE_LATER:
        return None
    if is_of_partitions(resource):
        match = re.fullmatch(f"({_NUMBER})-({_NUMBER})", tail)
        return ResourceDeviceId(vnpu=int(match[1]), physical_id=int(match[2])) if match else None
    match = re.fullmatch(f"({_NUMBER})(?:-({_NUMBER}))?", tail)
    if match is None:
        return None
    return ResourceDeviceId(physical_id=int(match[1]), share=int(match[2]) if match[2] else None)


def parse_cdi_name(name: str) -> ResourceDeviceId | None:
    """Parse a device's CDI name: an id without a share, in a resource that is not known."""
    partition = re.fullmatch(f"(.+)-{_NUMBER}-{_NUMBER}", name)
    whole = re.fullmatch(f"(.+)-{_NUMBER}", name)
    match = partition if partition and is_of_partitions(partition[1]) else whole
    return parse_id(match[1], name) if match else None


def partition_resource(resource: str, template: str) -> str | None:
    """The resource of vNPUs, by their chip's resource and their template; None if it has none.

    `vir04_3c_ndvpp` has 4 AI cores, 3 AI CPUs and no media engines: `Ascend310P-4c.3cpu.ndvpp`.
    """
    match = _TEMPLATE.fullmatch(template)
    if match is None:
        return None
    parts = [f"{int(match['cores'])}c"]
    parts += [f"{int(match['cpus'])}cpu"] if match["cpus"] else []
    parts += [match["memory"]] if match["memory"] else []
    parts += [_MEDIA.get(match["media"], match["media"])] if match["media"] else []
    return f"{resource}-{'.'.join(parts)}"


def is_of_partitions(resource: str) -> bool:
    """Whether a resource, or the last part of one, is that of vNPUs."""
    return _PARTITION.fullmatch(_last(resource)) is not None


def whole_resource(resource: str) -> str:
    """The resource of whole chips: of those that this resource has, or has vNPUs of."""
    match = _PARTITION.fullmatch(resource)
    return match[1] if match else resource


def is_huaweis(resource: str) -> bool:
    """Whether it is a resource of Huawei's device plugin, which may have run here before."""
    return resource.startswith(f"{DOMAIN}/")


def _last(resource: str) -> str:
    return resource.rpartition("/")[2]
