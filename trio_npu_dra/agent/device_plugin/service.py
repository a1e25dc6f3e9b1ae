"""The node's device plugins: one server a resource, and what keeps them right.

While a rolling update has two instances on a node, the older one serves until it ends. Its lists
and its CDI file would differ from those of the younger one if their flags do, and the kubelet takes
both for the same plugin.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from trio_npu_dra.agent.claims.cdi import CdiFolder
from trio_npu_dra.agent.claims.share_flag import ShareFlagStep
from trio_npu_dra.agent.device_plugin import assignment
from trio_npu_dra.agent.device_plugin.allocation import AllocationDeps, ResourcePlugin
from trio_npu_dra.agent.device_plugin.cdi_file import DevicesFile
from trio_npu_dra.agent.device_plugin.chooser import Chooser
from trio_npu_dra.agent.device_plugin.device import held_device, partition_of
from trio_npu_dra.agent.device_plugin.names import parse_cdi_name
from trio_npu_dra.agent.device_plugin.pods import PodHolds, PodList
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.device_plugin.state import Devices, ResourcesState
from trio_npu_dra.agent.holds.entry import HeldDevice
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.offers import PartitionMode
from trio_npu_dra.ascend.partition import vnpu_node
from trio_npu_dra.kit.base import file_lock
from trio_npu_dra.kit.base.errors import NpuDraError
from trio_npu_dra.kit.base.observable import Observable, derive
from trio_npu_dra.kit.kubelet.device_plugin.plugin import DevicePlugin

log = logging.getLogger(__name__)

_LOCK_PAUSE: Final = 0.1  # seconds between two tries; pods cannot start between two instances
_UNUSED_SECONDS: Final = 5.0  # between two looks whether a process still uses a chip
_FILE_SECONDS: Final = 5.0  # between two looks at the CDI file

Serve = Callable[[DevicePlugin], Awaitable[None]]
"""Serves one resource to the kubelet, until cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDeps:
    """What the device plugins of a node work with.

    Attributes:
        selection: Which chips are for which resource.
        board: The chips.
        partitioning: Which of their vNPUs were cut by hand.
        ledger: Who holds what.
        cdi: The claims' CDI files.
        is_busy: Whether a process uses a chip with one of these device nodes of the host.
        flags: Lets containers of several pods use a chip at once.
        pods: The kubelet's list of pods.
        serve: Serves one resource to the kubelet.
        state: Told what is known; has what was in resources before.
        chooser: Says which chips were chosen for a pod; None if the kubelet's choice counts.
    """

    selection: Selection
    board: Observable[Board]
    partitioning: Observable[PartitionMode]
    ledger: Ledger
    cdi: CdiFolder
    is_busy: Callable[[Collection[str]], Awaitable[bool]]
    flags: ShareFlagStep
    pods: PodList
    serve: Serve
    state: ResourcesState
    chooser: Chooser | None = None


async def serve_resources(node: PluginDeps) -> None:
    """Serve what the operator selects to the kubelet, until cancelled.

    Without a selection it only takes back what was given out before, so it is for nodes where
    something was.
    """
    path = node.ledger.state_folder / "device-plugin.lock"
    waits = "device plugins have to wait for their lock file"
    async with file_lock.hold_patiently(path, pause_seconds=_LOCK_PAUSE, waits=waits):
        await PluginNode(node).serve()


class PluginNode:
    """The resources of one instance."""

    def __init__(self, node: PluginDeps) -> None:
        self._node = node
        self._file = DevicesFile(node.cdi)
        self._pods = PodHolds(
            ledger=node.ledger,
            board=node.board,
            selection=node.selection,
            pods=node.pods,
            is_busy=node.is_busy,
            flags=node.flags,
            on_free=self._mark_unused,
        )
        self._tools = AllocationDeps(
            ledger=node.ledger,
            pods=self._pods,
            cdi=node.cdi,
            file=self._file,
            write_file=lambda: self._file.write(self._in_file()),
            flags=node.flags,
            chooser=node.chooser,
        )
        self._unused: Observable[frozenset[str]] = Observable(frozenset())
        self._unclear: Observable[tuple[Chip, ...]] = Observable(())
        self._complaints: set[str] = set()
        self._plugins: dict[str, ResourcePlugin] = {}

    async def serve(self) -> None:
        """Serve all resources, until cancelled; nothing before it is known what pods have."""
        node = self._node
        sources = (
            node.board,
            node.ledger.holds,
            self._unused,
            node.state.leaving,
            node.partitioning,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pods.keep)
            await self._pods.known.wait_until(bool)
            self._warn_whole()
            await self._share_again()
            await nursery.start(derive, self._unclear, self._found_unclear, *sources)
            await self._find_unused()
            await nursery.start(derive, node.state.devices, self._divided, *sources)
            await nursery.start(
                derive, node.state.waiting, self._found_waiting, *sources, self._unclear
            )
            nursery.start_soon(self._keep_finding_unused)
            nursery.start_soon(self._keep_file)
            if node.chooser is not None:
                nursery.start_soon(node.chooser.keep)
            node.state.pods_known.set(True)
            async for devices in node.state.devices.changes():
                for resource in devices.keys() - self._plugins.keys():
                    self._plugins[resource] = ResourcePlugin(resource, self._tools)
                    self._plugins[resource].offer(devices[resource])
                    nursery.start_soon(node.serve, self._plugins[resource])
                for resource, plugin in self._plugins.items():
                    plugin.offer(devices.get(resource, ()))

    async def _share_again(self) -> None:
        """Set the share flags that a reboot has reset, before pods that have shares start again.

        The kubelet starts none of them before their resource is there. It asks for nothing then: it
        remembers what they have.
        """
        try:
            await self._node.flags.tidy()
        except NpuDraError as error:
            log.warning("NPUs of pods cannot be shared yet", extra={"problem": str(error)})

    def _divided(self) -> Devices:
        return assignment.resource_devices(
            self._node.board.value,
            self._node.ledger.holds.value,
            self._node.selection,
            given=self._pods.given,
            unused=self._unused.value,
            partitioning=self._node.partitioning.value,
        )

    def _found_unclear(self) -> tuple[Chip, ...]:
        node = self._node
        return assignment.unclear(
            node.board.value,
            node.ledger.holds.value,
            node.selection,
            unused=self._unused.value,
            leaving=node.state.leaving.value,
        )

    def _found_waiting(self) -> Mapping[str, str]:
        node = self._node
        return assignment.waiting(
            node.board.value,
            node.ledger.holds.value,
            node.selection,
            given=self._pods.given,
            unclear=self._unclear.value,
        )

    async def _keep_finding_unused(self) -> None:
        """Find chips that no process uses any more, until cancelled."""
        while True:
            await self._unclear.wait_until(bool)
            await self._pods.refresh()  # a chip may be new, and in the hands of a pod
            await self._find_unused()
            await trio.sleep(_UNUSED_SECONDS if self._unclear.value else 0)

    async def _find_unused(self) -> None:
        for chip in self._unclear.value:
            nodes = {chip.device_node, *map(vnpu_node, chip.vnpus)}
            if not await self._node.is_busy(nodes):
                self._mark_unused({chip.device_node})
            else:
                self._warn_waiting(chip)

    def _mark_unused(self, nodes: Collection[str]) -> None:
        """These chips may be given out wherever they belong, as soon as nobody has them."""
        chips = self._node.board.value.chips
        numbers = {chip.physical_id for chip in chips if chip.device_node in nodes}
        left = self._node.state.leaving.value
        self._unused.set(self._unused.value.union(nodes))
        self._node.state.leaving.set({one: left[one] for one in left if one not in numbers})

    def _warn_whole(self) -> None:
        """Say of chips that are to be shared, and cannot be, that pods get them whole."""
        selection = self._node.selection
        whole = [
            chip.name
            for chip in self._node.board.value.chips
            if selection.resource_of(chip) is not None
            if selection.shares_of(chip) < selection.shares
        ]
        if whole:
            log.error(
                "--device-plugin-shares is not for NPUs whose dies have one share flag: pods get "
                "these whole. Leave them out of --device-plugin, or set --device-plugin-shares=1",
                extra={"shares": selection.shares, "npus": whole},
            )

    def _warn_waiting(self, chip: Chip) -> None:
        """Say once of a chip that it has to wait."""
        if chip.name not in self._complaints:
            self._complaints.add(chip.name)
            log.warning(
                "NPU not moved yet: a process uses it that belongs to no known pod or claim",
                extra={
                    "npu": chip.name,
                    "resource": self._node.selection.resource_of(chip) or "none",
                },
            )

    async def _keep_file(self) -> None:
        """Keep the CDI file right, until cancelled."""
        while True:
            self._file.keep(self._in_file())
            await trio.sleep(_FILE_SECONDS)

    def _in_file(self) -> dict[str, HeldDevice]:
        """What the CDI file has, by name: what may be given out, and what is or may be in use."""
        before = {
            name: held_device(name, chip, partition_of(chip, told.vnpu))
            for chip in self._node.board.value.chips
            for name in self._node.state.leaving.value.get(chip.physical_id, ())
            if (told := parse_cdi_name(name)) is not None
        }
        free = [device for devices in self._node.state.devices.value.values() for device in devices]
        now = {device.cdi_name: device.held for device in (*free, *self._pods.given)}
        return dict(sorted((before | now).items()))
