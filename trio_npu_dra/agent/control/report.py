"""The NPUs' health for people: the daemon writes it, and `npu-dra health` reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from trio_npu_dra.agent.device_plugin.device import DevicesByResource
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.agent.holds.hold import Hold, HolderKind, holds_of, vnpu_holders, vnpus_of
from trio_npu_dra.ascend.dcmi.job import HungCall
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.offers import NO_PARTITIONS, PartitionMode, not_partitioned
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.kit.api.objects import rfc3339


class _Report(BaseModel):
    # A daemon of another version may send more fields.
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class FaultReport(_Report):
    """One thing that is wrong."""

    code: str  # eight hex digits; zeros are an alarm without a code
    level: str
    rule: str  # why it has this level
    text: str  # the library's message, empty when it has none
    since: str  # RFC 3339


class NpuReport(_Report):
    """One NPU."""

    device: str
    # Its device's name in slices and claims, such as that of a module; empty while only partitions
    # of it are handed out.
    offered_as: str = ""
    level: str  # of the worst fault
    state: str  # `Healthy`, `Unhealthy` or `Unknown`
    faults: tuple[FaultReport, ...] = ()  # worst first
    unmonitored: str = ""  # why its health cannot be read; empty if it can
    network: str = ""  # what is wrong with its RoCE port
    held_by: tuple[str, ...] = ()  # the claims and pods that hold it, `namespace/name`


class HungCallReport(_Report):
    """A call into libdcmi.so that has not returned."""

    function: str
    device: str  # the NPU; empty for the Ascend driver as a whole
    since: str  # RFC 3339


class PartitionReport(_Report):
    """A vNPU that exists."""

    vnpu: int
    npu: str
    template: str  # empty if the Ascend driver does not tell
    is_ours: bool = False  # whether it was cut for a claim
    held_by: str = ""  # `namespace/name` of a claim or pod
    holder: str = ""  # with its kind: `claim ml/train`

    def __str__(self) -> str:
        """One line for people."""
        how = "cut for" if self.is_ours else "cut by hand, held by"
        who = f"{how} {self.holder}" if self.holder else "cut by hand"
        return " ".join(filter(None, (self.npu, f"vNPU {self.vnpu}", self.template))) + f", {who}"


class PartitioningReport(_Report):
    """How NPUs are cut into partitions."""

    is_on: bool = False
    problem: str = ""  # why no partition is published in spite of it
    refused: dict[str, str] = {}  # why NPUs are not cut, by name
    partitions: tuple[PartitionReport, ...] = ()


class ResourceReport(_Report):
    """A device plugin resource."""

    name: str  # such as `huawei.com/Ascend910`
    devices: int
    healthy: int  # that pods may get
    held: int  # that pods have

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.name}: {self.devices} devices, {self.healthy} healthy, {self.held} held"


class HealthReport(_Report):
    """All that the daemon knows of its NPUs' health."""

    # Whether this instance waits for another one, which serves the node, to end.
    waits: bool = False
    # events: the Ascend driver sends faults; polling: chips are read in turn.
    watch: Literal["events", "polling", "starting"]
    refusal: str = ""  # why the Ascend driver sends no events
    # Whether unhealthy NPUs are tainted, or left out; None until the API server has answered.
    taints: bool | None = None
    hung_calls: tuple[HungCallReport, ...] = ()  # oldest first
    gaps: tuple[str, ...] = ()  # why NPUs or facts may be missing, as text
    npus: tuple[NpuReport, ...] = ()  # by number
    partitioning: PartitioningReport = PartitioningReport()
    resources: tuple[ResourceReport, ...] = ()
    # Devices that pods have though their resources do not list them any more, as text.
    unserved: tuple[str, ...] = ()
    # Why NPUs are not yet in the resource or pool to which they belong, by name.
    waiting: dict[str, str] = {}


def report_resources(
    devices: DevicesByResource, holds: Iterable[Hold]
) -> tuple[ResourceReport, ...]:
    """The resources that are served."""
    holders = {hold.holder.uid for hold in holds}
    return tuple(
        ResourceReport(
            name=name,
            devices=len(some),
            healthy=sum(one.is_healthy for one in some),
            held=sum(one.holder_uid in holders for one in some),
        )
        for name, some in sorted(devices.items())
    )


def report_unserved(devices: DevicesByResource, holds: Iterable[Hold]) -> tuple[str, ...]:
    """Devices that pods have and no resource lists."""
    listed = {one.holder_uid for some in devices.values() for one in some}
    return tuple(
        f"{hold.device} by {hold.holder.titled}"
        for hold in holds
        if hold.holder.kind is HolderKind.POD and hold.holder.uid not in listed
    )


def report_npus(
    board: Board, holds: tuple[Hold, ...], partitioning: PartitionMode = NO_PARTITIONS
) -> tuple[NpuReport, ...]:
    """All chips, as the last Board has them."""
    devices: dict[str, list[str]] = {}
    for offer in available(board, holds, partitioning):
        if offer.partition:
            continue  # see `report_partitioning`
        for node in offer.device_nodes:
            devices.setdefault(node, []).append(offer.name)
    return tuple(
        NpuReport(
            device=chip.name,
            offered_as=", ".join(devices.get(chip.device_node, ())),
            level=chip.health.level,
            state=chip.health.state.value,
            faults=tuple(
                FaultReport(
                    code=f"{fault.code:08X}",
                    level=fault.level,
                    rule=fault.rule,
                    text=fault.text,
                    since=rfc3339(fault.since),
                )
                for fault in chip.health.faults
            ),
            unmonitored=chip.health.unmonitored,
            network=chip.health.network,
            held_by=tuple(
                dict.fromkeys(str(hold.holder) for hold in holds_of({chip.device_node}, holds))
            ),
        )
        for chip in board.chips
    )


def report_partitioning(
    board: Board,
    holds: Iterable[Hold],
    partitioning: PartitionMode,
    features: ServerFeatures | None,
) -> PartitioningReport:
    """How chips are cut, and into which partitions."""
    holds = tuple(holds)
    has_none = partitioning.is_on and features is not None and not features.counters
    return PartitioningReport(
        is_on=partitioning.is_on,
        problem="the API server keeps no counters: whole NPUs only" if has_none else "",
        refused=not_partitioned(board, replace(partitioning, ours=vnpus_of(holds))),
        partitions=tuple(_partitions(board, holds)),
    )


def _partitions(board: Board, holds: Iterable[Hold]) -> Iterator[PartitionReport]:
    held, ours = vnpu_holders(holds), vnpus_of(holds)
    for chip in board.chips:
        templates = {vdevice.id: vdevice.template for vdevice in chip.vdevices}
        for vnpu in chip.vnpus:
            holder = held.get(vnpu)
            yield PartitionReport(
                vnpu=vnpu,
                npu=chip.name,
                template=templates.get(vnpu, ""),
                is_ours=vnpu in ours,
                held_by=str(holder or ""),
                holder=holder.titled if holder else "",
            )


def report_hung(call: HungCall, board: Board) -> HungCallReport:
    """A call that has not returned, with the name of its NPU."""
    parts = call.device if isinstance(call.device, tuple) else ()
    ref = next((part for part in (call.device, *parts) if isinstance(part, ChipRef)), None)
    names = [chip.name for chip in board.chips if chip.ref == ref]
    return HungCallReport(
        function=call.function, device="".join(names[:1]), since=rfc3339(call.since)
    )


def watch_mode(status: WatchStatus) -> Literal["events", "polling", "starting"]:
    """How the watcher learns of faults, in a word."""
    if status.subscribed:
        return "events"
    return "polling" if status.refusal else "starting"
