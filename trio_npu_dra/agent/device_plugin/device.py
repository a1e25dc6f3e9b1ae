"""A device of a resource: a chip, a share of one, or a vNPU that was created on one manually."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from trio_npu_dra.agent.device_plugin.names import ResourceDeviceId
from trio_npu_dra.agent.holds.entry import Allocated, Entry, EntryState, HeldDevice
from trio_npu_dra.agent.holds.hold import POD_PREFIX, Holder, HolderKind
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.kit.base.health import HealthState


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDevice:
    """What a pod can get by a resource."""

    resource: str
    chip: Chip  # the chip that it is, or is a part of
    share: int | None = None  # its number, if it is a share of the chip
    partition: Partition | None = None  # if it is a partition of the chip
    has_files: bool = True  # whether its containers can have what they need of the host

    @classmethod
    def of_entry(cls, entry: Entry) -> Self | None:
        """The device in a pod's record; None if its share is no number."""
        (given, *_), (device, *_) = entry.allocation, entry.devices
        share = given.share_id
        if not (share is None or share.isdecimal()):
            return None
        return cls(
            resource=given.pool,
            chip=device.chips[0],
            share=None if share is None else int(share),
            partition=device.partition,
        )

    @property
    def part(self) -> int | None:
        """Which part of its chip it is; None for all of it."""
        return self.partition.vnpu if self.partition else self.share

    @property
    def id(self) -> str:
        """Its id in the resource."""
        vnpu = self.partition.vnpu if self.partition else None
        parsed = ResourceDeviceId(physical_id=self.chip.physical_id, share=self.share, vnpu=vnpu)
        return parsed.text(self.resource)

    @property
    def cdi_name(self) -> str:
        """The name under which containers get it; all shares of a chip give the chip."""
        return replace(self, share=None).id

    @property
    def name(self) -> str:
        """What people call it, and the DRA device name where it is offered by itself."""
        return f"{self.chip.name}-vnpu-{self.partition.vnpu}" if self.partition else self.chip.name

    @property
    def holder_uid(self) -> str:
        """The ledger's key for the pod that has it."""
        uid = f"{POD_PREFIX}{self.name}"
        return uid if self.share is None else f"{uid}-{self.share}"

    @property
    def is_healthy(self) -> bool:
        """Whether new pods may get it; not if its chip's health cannot be read."""
        is_lost = self.partition is not None and self.partition.vnpu not in self.chip.vnpus
        is_there = self.has_files and not (self.chip.gone or is_lost)
        return is_there and self.chip.health.state is HealthState.HEALTHY

    @property
    def held(self) -> HeldDevice:
        """What a container gets with it."""
        return held_device(self.name, self.chip, self.partition)

    def entry(
        self, *, namespace: str = "", pod: str = "", state: EntryState = EntryState.READY
    ) -> Entry:
        """The entry of the pod that has it, which may not be known yet."""
        holder = Holder(kind=HolderKind.POD, namespace=namespace, name=pod, uid=self.holder_uid)
        given = Allocated(
            requests=(self.resource,),
            pool=self.resource,
            device=self.name,
            share_id=None if self.share is None else str(self.share),
        )
        return Entry(holder=holder, state=state, allocation=(given,), devices=(self.held,))


DevicesByResource: TypeAlias = Mapping[str, tuple[ResourceDevice, ...]]


def partition_of(chip: Chip, vnpu: int | None) -> Partition | None:
    """The partition of a vNPU, which may be gone."""
    if vnpu is None:
        return None
    templates = {vdevice.id: vdevice.template for vdevice in chip.vdevices}
    return Partition(template=templates.get(vnpu, ""), vnpu=vnpu)


def held_device(name: str, chip: Chip, partition: Partition | None = None) -> HeldDevice:
    """What a container gets with a chip, or with a partition of it."""
    node = chip.device_node
    nodes = {node: node}
    if partition is not None:
        nodes = {f"/dev/davinci{partition.vnpu}": partition.device_node}
    return HeldDevice(
        device=name,
        family=chip.family,
        nodes=nodes,
        chips=(chip,),
        partition=partition,
        chip_node=node if partition else "",
    )
