"""A driver instance with a device plugin, the kubelet beside it, and what pods have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import trio

from tests.claims.flags import FlagFiles
from tests.claims.node import NodeOnDisk, npu
from trio_npu_dra.agent.claims.repair import Repair
from trio_npu_dra.agent.device_plugin.allocation import AllocationDeps, ResourcePlugin
from trio_npu_dra.agent.device_plugin.cdi_file import DevicesFile
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.agent.device_plugin.pods import SOON_SECONDS, PodHolds, PodList
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.kit.base.errors import KubeletSilent
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.device_plugin.pod_resources import PodDevice, PodResources

RESOURCE = "huawei.com/Ascend910"
OWN = "ascend-npu-dra-kubeletplugin-x"
NEIGHBOUR = "ascend-npu-dra-kubeletplugin-y"
"""A pod in the namespace of our own."""

OWN_NAMESPACE = "ascend-dra"


def ids(*numbers: int) -> list[str]:
    """The ids of whole chips."""
    return [f"Ascend910-{number}" for number in numbers]


def given(pod: str, *numbers: int, resource: str = RESOURCE) -> list[PodDevice]:
    """What a pod has."""
    last = resource.partition("/")[2]
    return with_ids(pod, *(f"{last}-{number}" for number in numbers), resource=resource)


def with_ids(pod: str, *ids: str, resource: str = RESOURCE) -> list[PodDevice]:
    """A pod that has devices, by their ids."""
    return [
        PodDevice(namespace="ml", pod=pod, container="main", resource=resource, id=id_)
        for id_ in ids
    ]


def chips(count: int = 8) -> list[ResourceDevice]:
    """The devices of a resource of whole chips."""
    return [ResourceDevice(resource=RESOURCE, chip=npu(number)) for number in range(count)]


@dataclass
class Kubelet:
    """Its list of pods, or why there is none; and which chips processes use."""

    devices: list[PodDevice] = field(default_factory=list)
    others: set[str] = field(default_factory=lambda: {OWN})
    namespace_of_own: str = OWN_NAMESPACE
    is_away: bool = False
    busy: set[str] = field(default_factory=set)
    asked: int = 0
    while_asked: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
    while_answered: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint

    async def read(self) -> PodResources:
        """Answer."""
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.is_away:
            raise KubeletSilent("the kubelet does not list pods on /x: refused")
        names = self.others | {one.pod for one in self.devices}
        listed = PodResources(
            pods=frozenset(
                (self.namespace_of_own if name in {OWN, NEIGHBOUR} else "ml", name)
                for name in names
            ),
            devices=tuple(self.devices),
        )
        await self.while_answered()
        return listed

    async def is_busy(self, nodes: Collection[str]) -> bool:
        """Whether a process uses one of them."""
        await self.while_asked()
        return not self.busy.isdisjoint(nodes)


class Instance:
    """A driver instance with a device plugin on the node."""

    def __init__(
        self,
        node: NodeOnDisk,
        kubelet: Kubelet,
        text: str = "all",
        *,
        shares: int = 1,
    ) -> None:
        self.node = node
        self.ledger = node.ledger()
        self.flags = FlagFiles(node.root / "flags", node.board)
        self.step = ShareFlagStep(self.ledger, node.cdi(), node.board, self.flags)
        self.repair = Repair(self.ledger, node.cdi(), [self.step])
        self.file = DevicesFile(node.cdi())
        self.freed: set[str] = set()
        self.containers: Observable[Mapping[str, str]] = Observable({})
        self.pods = PodHolds(
            ledger=self.ledger,
            board=node.board,
            selection=Selection.parse(text, shares=shares),
            pods=PodList(read=kubelet.read, own_pod=OWN, own_namespace=OWN_NAMESPACE),
            is_busy=kubelet.is_busy,
            flags=self.step,
            on_free=self.freed.update,
            containers=self.containers,
        )
        self.plugin = self.plugin_of(RESOURCE)
        self.plugin.offer(chips())
        if shares > 1:
            self.plugin.offer(
                [replace(one, share=share) for one in chips() for share in range(shares)]
            )

    def plugin_of(self, resource: str) -> ResourcePlugin:
        """What serves a resource."""
        tools = AllocationDeps(
            ledger=self.ledger,
            pods=self.pods,
            cdi=self.node.cdi(),
            file=self.file,
            write_file=lambda: self.file.write({one.cdi_name: one.held for one in chips()}),
            flags=self.step,
        )
        return ResourcePlugin(resource, tools)

    @property
    def noted(self) -> bool:
        """Whether the driver remembers that it has set a share flag."""
        return (self.node.state_folder / "share-flags.json").exists()

    async def look_until_sure(self) -> None:
        """Look at the list of pods until what it lacks is taken back."""
        for _ in range(2):
            await self.pods.refresh()
            await trio.sleep(SOON_SECONDS)

    async def held(self) -> dict[str, str]:
        """Who has what, by chip."""
        async with self.ledger.exclusive():
            pass
        return {
            entry.uid.removeprefix("pod-of-"): str(entry)
            for entry in self.ledger.by_uid.values()
            if entry.holder.kind is HolderKind.POD
        }
