"""One resource's devices for the kubelet: which there are, which are best, and to give them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trio_npu_dra.claims.cdi import CdiFolder
from trio_npu_dra.claims.free import check_free
from trio_npu_dra.claims.share_flag import ShareFlagStep
from trio_npu_dra.errors import AllocationRefused, NpuDraError
from trio_npu_dra.holds.entry import Entry, State
from trio_npu_dra.holds.ledger import Ledger
from trio_npu_dra.kubelet.device_plugin.plugin import Choice, Devices, PluginDevice
from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.cdi_file import DevicesFile
from trio_npu_dra.resources.device import ResourceDevice
from trio_npu_dra.resources.pods import PodHolds
from trio_npu_dra.resources.preferred import place_of, preferred


class ChipPlugin:
    """The devices of one resource; fulfils `kubelet.device_plugin.plugin.DevicePlugin`.

    Args:
        resource: Its name.
        ledger: Who holds what.
        pods: Finds out for whom an allocation was.
        cdi: The claims' files, which guard chips where a record cannot be read.
        file: Says what a container gets with a device.
        write_file: Makes that file right.
        flags: Lets containers of several pods use a chip at once.
    """

    def __init__(
        self,
        resource: str,
        *,
        ledger: Ledger,
        pods: PodHolds,
        cdi: CdiFolder,
        file: DevicesFile,
        write_file: Callable[[], None],
        flags: ShareFlagStep,
    ) -> None:
        self._resource = resource
        self._ledger = ledger
        self._pods = pods
        self._cdi = cdi
        self._file = file
        self._write_file = write_file
        self._flags = flags
        self._offered: Mapping[str, ResourceDevice] = {}
        self._devices: Observable[Devices] = Observable(())

    @property
    def resource(self) -> str:
        """Its name."""
        return self._resource

    @property
    def devices(self) -> Observable[Devices]:
        """Its devices."""
        return self._devices

    def offer(self, devices: Sequence[ResourceDevice]) -> None:
        """Have just these devices from now on."""
        self._offered = {device.id: device for device in devices}
        self._devices.set(
            tuple(
                PluginDevice(id=id_, healthy=one.is_healthy, numa_node=one.chip.numa_node)
                for id_, one in self._offered.items()
            )
        )

    def prefer(self, choice: Choice) -> Sequence[str]:
        """The ids that a container had best get."""
        places = {id_: place_of(one.chip, one.part) for id_, one in self._offered.items()}
        return preferred(places, choice.available, choice.needed, choice.size)

    async def allocate(self, containers: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Note that a pod has the devices, and make sure that containers can get them.

        Raises:
            AllocationRefused: A claim has one of them, it is not here any more, its chip cannot be
                shared now, or the disk fails.
        """
        devices = [[self._device(id_) for id_ in ids] for ids in containers]
        entries = [self._entry(one) for given in devices for one in given]
        with self._pods.allocating([entry.uid for entry in entries]):
            try:
                await self._take(entries)
                await self._share([entry for entry in entries if entry.state is State.INTENDED])
            except NpuDraError as error:
                raise AllocationRefused(str(error)) from error
        names = [[self._file.name(one.cdi_name) for one in given] for given in devices]
        return [list(dict.fromkeys(given)) for given in names]  # of two shares of a chip one

    def _device(self, id_: str) -> ResourceDevice:
        device = self._offered.get(id_)
        if device is None:
            known = ", ".join(self._offered) or "none"
            raise AllocationRefused(
                f"{id_} is no device of {self._resource} on this node any more (it has {known})"
            )
        return device

    def _entry(self, device: ResourceDevice) -> Entry:
        """What is noted at first; *intended* as long as something is left to do."""
        entry = device.entry()
        return device.entry(state=State.INTENDED) if self._flags.is_needed(entry) else entry

    async def _take(self, entries: Sequence[Entry]) -> None:
        """Note all, unless somebody else has one."""
        async with self._ledger.exclusive():
            # Another pod that had a device has ended: the kubelet knows, and we may not yet.
            others = [hold for other in self._ledger.by_uid.values() for hold in other.holds]
            for entry in entries:
                for hold in entry.holds:
                    check_free(hold, others, self._ledger, self._cdi)
            for entry in entries:
                self._ledger.put(entry)
            self._write_file()

    async def _share(self, entries: Sequence[Entry]) -> None:
        """Let others use the chips at the same time, and note that all is done."""
        for entry in {entry.holds[0].nodes: entry for entry in entries}.values():
            await self._flags.do(entry)
        if entries:
            async with self._ledger.exclusive():
                for entry in entries:
                    self._ledger.put(replace(entry, state=State.READY))
