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

from trio_npu_dra import file_lock
from trio_npu_dra.claims.cdi import CdiFolder
from trio_npu_dra.holds.entry import HeldDevice
from trio_npu_dra.holds.hold import HolderKind
from trio_npu_dra.holds.ledger import Ledger
from trio_npu_dra.kubelet.device_plugin.plugin import DevicePlugin
from trio_npu_dra.npu.model import Board, Chip
from trio_npu_dra.observable import Observable, derive
from trio_npu_dra.resources import division
from trio_npu_dra.resources.allocation import ChipPlugin
from trio_npu_dra.resources.cdi_file import DevicesFile
from trio_npu_dra.resources.names import device_id
from trio_npu_dra.resources.pods import PodHolds, PodList, device_of, resource_of
from trio_npu_dra.resources.selection import Selection

log = logging.getLogger(__name__)

_LOCK_PAUSE: Final = 0.1  # seconds between two tries; pods cannot start between two instances
_UNUSED_SECONDS: Final = 5.0  # between two looks whether a process still uses a chip
_FILE_SECONDS: Final = 5.0  # between two looks at the CDI file

Serve = Callable[[DevicePlugin], Awaitable[None]]
"""Serves one resource to the kubelet, without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What the device plugins of a node work with.

    Attributes:
        selection: Which chips are for which resource.
        board: The chips.
        ledger: Who holds what.
        cdi: The claims' CDI files.
        is_busy: Whether a process uses a chip with one of these device nodes of the host.
        pods: The kubelet's list of pods.
        serve: Serves one resource to the kubelet.
        leaving: Chips that were in a resource when we started, and were not seen unused since:
            their ids by their device nodes (`cdi_file.devices_before`).
        pods_known: Set once it is known which pods have which chips; then the DRA pool can be
            published without one of these.
    """

    selection: Selection
    board: Observable[Board]
    ledger: Ledger
    cdi: CdiFolder
    is_busy: Callable[[Collection[str]], Awaitable[bool]]
    pods: PodList
    serve: Serve
    leaving: Observable[Mapping[str, str]]
    pods_known: Observable[bool]


async def serve_resources(node: Node) -> None:
    """Serve what the operator selects to the kubelet, without end.

    Without a selection it only takes back what was given out before.
    """
    if not node.selection and not node.leaving.value:
        await node.ledger.holds.wait_until(
            lambda holds: any(hold.holder.kind is HolderKind.POD for hold in holds)
        )
    path = node.ledger.state_folder / "device-plugin.lock"
    waits = "device plugins have to wait for their lock file"
    async with file_lock.hold_patiently(path, pause_seconds=_LOCK_PAUSE, waits=waits):
        await Resources(node).serve()


class Resources:
    """The resources of one instance."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._file = DevicesFile(node.cdi)
        self._pods = PodHolds(
            ledger=node.ledger,
            board=node.board,
            selection=node.selection,
            pods=node.pods,
            is_busy=node.is_busy,
            on_free=self._note_unused,
        )
        self._unused: Observable[frozenset[str]] = Observable(frozenset())
        self._unclear: Observable[tuple[Chip, ...]] = Observable(())
        self._complaints: set[str] = set()
        self._chips: Observable[Mapping[str, tuple[Chip, ...]]] = Observable({})
        self._plugins: dict[str, ChipPlugin] = {}

    async def serve(self) -> None:
        """Serve all resources, without end; nothing before it is known what pods have."""
        node = self._node
        sources = (node.board, node.ledger.holds, self._unused, node.leaving)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pods.keep)
            await self._pods.known.wait_until(bool)
            await nursery.start(derive, self._unclear, self._found_unclear, *sources)
            await self._find_unused()
            await nursery.start(derive, self._chips, self._divided, *sources)
            nursery.start_soon(self._keep_finding_unused)
            nursery.start_soon(self._keep_file)
            node.pods_known.set(True)
            async for chips in self._chips.changes():
                for resource in chips.keys() - self._plugins.keys():
                    self._plugins[resource] = self._plugin(resource)
                    self._plugins[resource].offer(chips[resource])
                    nursery.start_soon(node.serve, self._plugins[resource])
                for resource, plugin in self._plugins.items():
                    plugin.offer(chips.get(resource, ()))

    def _plugin(self, resource: str) -> ChipPlugin:
        return ChipPlugin(
            resource,
            ledger=self._node.ledger,
            pods=self._pods,
            cdi=self._node.cdi,
            file=self._file,
            write_file=lambda: self._file.write(self._in_file()),
            is_busy=self._node.is_busy,
        )

    def _divided(self) -> Mapping[str, tuple[Chip, ...]]:
        return division.resource_chips(
            self._node.board.value,
            self._node.ledger.holds.value,
            self._node.selection,
            held_as={node: resource_of(entry) for node, entry in self._pods.entries.items()},
            unused=self._unused.value,
        )

    def _found_unclear(self) -> tuple[Chip, ...]:
        node = self._node
        return division.unclear(
            node.board.value,
            node.ledger.holds.value,
            node.selection,
            unused=self._unused.value,
            leaving=node.leaving.value,
        )

    async def _keep_finding_unused(self) -> None:
        """Find chips that no process uses any more, without end."""
        while True:
            await self._unclear.wait_until(bool)
            await self._pods.look()  # a chip may be new, and in the hands of a pod
            await self._find_unused()
            await trio.sleep(_UNUSED_SECONDS if self._unclear.value else 0)

    async def _find_unused(self) -> None:
        for chip in self._unclear.value:
            if not await self._node.is_busy({chip.device_node}):
                self._note_unused({chip.device_node})
            else:
                self._complain(chip)

    def _note_unused(self, nodes: Collection[str]) -> None:
        """These chips may be given out wherever they belong, as soon as nobody has them."""
        self._unused.set(self._unused.value.union(nodes))
        left = {node: id_ for node, id_ in self._node.leaving.value.items() if node not in nodes}
        self._node.leaving.set(left)

    def _complain(self, chip: Chip) -> None:
        """Say once of a chip that it has to wait."""
        if chip.name not in self._complaints:
            self._complaints.add(chip.name)
            log.warning(
                "an NPU that is to move is in use by nobody that is known, and waits",
                extra={
                    "npu": chip.name,
                    "resource": self._node.selection.resource_of(chip) or "none",
                },
            )

    async def _keep_file(self) -> None:
        """Keep the CDI file right, without end."""
        while True:
            self._file.keep(self._in_file())
            await trio.sleep(_FILE_SECONDS)

    def _in_file(self) -> dict[str, HeldDevice]:
        """What the CDI file has, by id: what may be given out, and what is or may be in use."""
        leaving = self._node.leaving.value
        before = {
            leaving[chip.device_node]: device_of(chip)
            for chip in self._node.board.value.chips
            if chip.device_node in leaving
        }
        free = {
            device_id(resource, chip.physical_id): device_of(chip)
            for resource, chips in self._chips.value.items()
            for chip in chips
        }
        used = {
            device_id(resource_of(entry), device.chips[0].physical_id): device
            for entry in self._pods.entries.values()
            for device in entry.devices
            if device.chips
        }
        return dict(sorted((before | free | used).items()))
