"""The node's device plugins: one server a resource, and the tasks that keep them right."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import trio

from trio_npu_dra.agent.device_plugin import assignment
from trio_npu_dra.agent.device_plugin.allocation import AllocationDeps, ResourcePlugin
from trio_npu_dra.agent.device_plugin.cdi_file import DevicesFile
from trio_npu_dra.agent.device_plugin.device import DevicesByResource, held_device, partition_of
from trio_npu_dra.agent.device_plugin.names import parse_cdi_name
from trio_npu_dra.agent.device_plugin.pods import PodHolds, PodList
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.entry import HeldDevice
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.partition import vnpu_node
from trio_npu_dra.kit.base import disk
from trio_npu_dra.kit.base.errors import DriverError
from trio_npu_dra.kit.base.observable import Observable, derive
from trio_npu_dra.kit.kubelet.device_plugin.plugin import DevicePlugin

log = logging.getLogger(__name__)

_UNUSED_SECONDS: Final = 5.0  # between two checks whether a process still uses a chip
_FILE_SECONDS: Final = 5.0  # between two checks of the CDI file


@dataclass(eq=False, kw_only=True)
class NodePlugins:
    """The device plugins of one instance.

    Without a selection they only take back what an earlier instance gave out.
    """

    selection: Selection
    board: Observable[Board]
    ledger: Ledger
    cdi: CdiFolder
    # Whether a process uses a chip with one of these device nodes of the host.
    is_busy: Callable[[Collection[str]], Awaitable[bool]]
    flags: ShareFlagStep
    pods: PodList
    serve_plugin: Callable[[DevicePlugin], Awaitable[None]]  # to the kubelet, until cancelled
    # Chips that were in a resource when we started, and were not seen unused since: the CDI names
    # of their devices by physical id (`cdi_file.devices_before`).
    leaving: Observable[Mapping[int, tuple[str, ...]]]
    # Set here: what is served; why chips are not yet where they belong, by name; and whether the
    # kubelet has reported which pods have what, before which no DRA pool can be published.
    devices: Observable[DevicesByResource]
    waiting: Observable[Mapping[str, str]]
    pods_known: Observable[bool]
    containers: Observable[Mapping[str, str]]  # set by `PodHolds`
    # Chips that no process used when we checked, by device node; chips yet to be checked.
    _unused: Observable[frozenset[str]] = field(
        init=False, default_factory=lambda: Observable(frozenset())
    )
    _unclear: Observable[tuple[Chip, ...]] = field(
        init=False, default_factory=lambda: Observable(())
    )
    _has_file: Observable[bool] = field(init=False, default_factory=lambda: Observable(True))
    _warned: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._file = DevicesFile(self.cdi)
        self._pod_holds = PodHolds(
            ledger=self.ledger,
            board=self.board,
            selection=self.selection,
            pods=self.pods,
            is_busy=self.is_busy,
            flags=self.flags,
            on_free=self._mark_unused,
            containers=self.containers,
        )
        self._tools = AllocationDeps(
            ledger=self.ledger,
            pods=self._pod_holds,
            cdi=self.cdi,
            file=self._file,
            write_file=lambda: self._file.write(self._file_content()),
            flags=self.flags,
        )

    async def serve(self) -> None:
        """Serve all resources to the kubelet, until cancelled.

        One instance at a time may do so, that with the lock of the publisher: the lists and the CDI
        file of two would differ if their flags do, and the kubelet takes both for the same plugin.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pod_holds.keep)
            await self._pod_holds.known.wait_until(bool)
            self._warn_whole()
            await self._share_again()
            sources = self.board, self.ledger.holds, self._unused, self.leaving
            await nursery.start(derive, self._unclear, self._find_unclear, *sources)
            await self._find_unused()
            await nursery.start(derive, self.devices, self._divide, *sources, self._has_file)
            await nursery.start(derive, self.waiting, self._explain, *sources, self._unclear)
            nursery.start_soon(self._keep_finding_unused)
            self.pods_known.set(True)
            await self._check_file()  # before the kubelet hears of the devices
            nursery.start_soon(self._keep_file)
            plugins: dict[str, ResourcePlugin] = {}
            async for devices in self.devices.changes():
                for resource in devices.keys() - plugins.keys():
                    plugins[resource] = ResourcePlugin(resource, self._tools)
                    plugins[resource].offer(devices[resource])
                    nursery.start_soon(self.serve_plugin, plugins[resource])
                for resource, plugin in plugins.items():
                    plugin.offer(devices.get(resource, ()))

    async def _share_again(self) -> None:
        """Set the share flags that a reboot has reset, before pods that have shares start again.

        The kubelet starts none of them before their resource is there. It allocates nothing then:
        it remembers what they have.
        """
        try:
            await self.flags.tidy()
        except DriverError as error:
            log.warning("NPUs of pods cannot be shared yet", extra={"problem": str(error)})

    def _divide(self) -> DevicesByResource:
        found = assignment.resource_devices(
            self.board.value,
            self.ledger.holds.value,
            self.selection,
            given=self._pod_holds.given,
            unused=self._unused.value,
        )
        # The kubelet refuses a pod for good whose allocation fails; for healthy devices it waits.
        has_files = self._has_file.value
        return {
            resource: tuple(replace(device, has_files=has_files) for device in devices)
            for resource, devices in found.items()
        }

    def _find_unclear(self) -> tuple[Chip, ...]:
        return assignment.unclear(
            self.board.value,
            self.ledger.holds.value,
            self.selection,
            unused=self._unused.value,
            leaving=self.leaving.value,
        )

    def _explain(self) -> Mapping[str, str]:
        return assignment.waiting(
            self.board.value,
            self.ledger.holds.value,
            self.selection,
            given=self._pod_holds.given,
            unclear=self._unclear.value,
        )

    async def _keep_finding_unused(self) -> None:
        while True:
            await self._unclear.wait_until(bool)
            await self._pod_holds.refresh()  # a chip may be new, and in the hands of a pod
            await self._find_unused()
            await trio.sleep(_UNUSED_SECONDS if self._unclear.value else 0)

    async def _find_unused(self) -> None:
        """Find chips that no process uses any more; warn once of each that a process uses."""
        for chip in self._unclear.value:
            if not await self.is_busy({chip.device_node, *map(vnpu_node, chip.vnpus)}):
                self._mark_unused({chip.device_node})
            elif chip.name not in self._warned:
                self._warned.add(chip.name)
                log.warning(
                    "NPU not moved yet: a process uses it that belongs to no known pod or claim",
                    extra={
                        "npu": chip.name,
                        "resource": self.selection.resource_of(chip) or "none",
                    },
                )

    def _mark_unused(self, nodes: Collection[str]) -> None:
        """Let these chips be given out where they belong, as soon as they have no holder."""
        chips = self.board.value.chips
        numbers = {chip.physical_id for chip in chips if chip.device_node in nodes}
        left = self.leaving.value
        self._unused.set(self._unused.value.union(nodes))
        self.leaving.set({one: left[one] for one in left if one not in numbers})

    def _warn_whole(self) -> None:
        """Name the chips that pods get whole, because they cannot be shared."""
        whole = [
            chip.name
            for chip in self.board.value.chips
            if self.selection.resource_of(chip) is not None
            if self.selection.shares_of(chip) < self.selection.shares
        ]
        if whole:
            log.error(
                "--device-plugin-shares is not for NPUs whose dies have one share flag: pods get "
                "these whole. Leave them out of --device-plugin, or set --device-plugin-shares=1",
                extra={"shares": self.selection.shares, "npus": whole},
            )

    async def _keep_file(self) -> None:
        while True:
            await trio.sleep(_FILE_SECONDS)
            await self._check_file()

    async def _check_file(self) -> None:
        content = self._file_content()
        self._has_file.set(await disk.run(partial(self._file.keep, content)))

    def _file_content(self) -> dict[str, HeldDevice]:
        """Devices of the CDI file by name: those to be given out, and those that may be in use."""
        before = {
            name: held_device(name, chip, partition_of(chip, parsed.vnpu))
            for chip in self.board.value.chips
            for name in self.leaving.value.get(chip.physical_id, ())
            if (parsed := parse_cdi_name(name)) is not None
        }
        free = [device for devices in self.devices.value.values() for device in devices]
        now = {device.cdi_name: device.held for device in (*free, *self._pod_holds.given)}
        return dict(sorted((before | now).items()))
