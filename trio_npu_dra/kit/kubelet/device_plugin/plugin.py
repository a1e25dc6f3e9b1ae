"""What a device plugin does for the kubelet, in the terms of neither gRPC nor any hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from trio_npu_dra.kit.base.observable import Observable


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDevice:
    """A device of a resource.

    Attributes:
        id: Its name in the resource, at most 63 characters.
        healthy: Whether new pods may be given it. Running pods keep it either way.
        numa_node: The NUMA node that it is near to; None if unknown.
    """

    id: str
    healthy: bool
    numa_node: int | None = None


Devices: TypeAlias = tuple[PluginDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the kubelet may choose from for a container.

    Attributes:
        available: Ids of healthy devices that no pod has.
        needed: Those of them that must be chosen.
        size: How many it wants, the needed ones included.
    """

    available: tuple[str, ...]
    needed: tuple[str, ...]
    size: int


class DevicePlugin(Protocol):
    """The devices of one resource."""

    @property
    def resource(self) -> str:
        """Its name, such as `vendor.com/device`."""

    @property
    def devices(self) -> Observable[Devices]:
        """All of them, as the kubelet is to see them."""

    async def prefer(self, choice: Choice) -> Sequence[str]:
        """The ids that are best for a container: as many as it wants, the needed ones among them.

        Empty if there are not as many.
        """

    async def allocate(self, containers: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Give devices to containers of one pod, whose name the kubelet does not tell.

        May be called again for devices that were given before: their pod has ended then, or it is
        another container of the same pod.

        Args:
            containers: The ids for each container.

        Returns:
            For each container the qualified CDI names of its devices.

        Raises:
            AllocationRefused: It cannot be done; the message is for the owner of the pod.
        """
