"""The devices of one resource: listed to the kubelet, preferred, and given to pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import trio

from trio_npu_dra.agent.device_plugin.cdi_file import DevicesFile
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.agent.device_plugin.pods import PodHolds
from trio_npu_dra.agent.device_plugin.preferred import place_of, preferred
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.handout.exclusion import refuse_if_held
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.base.errors import AllocationRefused, DriverError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.device_plugin.plugin import Choice, Devices, PluginDevice

IN_USE_SECONDS: Final = 5.0
"""How long an allocation waits for the processes of a chip's last pod. The kubelet gives a chip
to the next pod when its pod is deleted by force, and ends the pod's containers within 2 s."""

_PAUSE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationDeps:
    """What all resources of a node allocate with."""

    ledger: Ledger
    pods: PodHolds
    cdi: CdiFolder  # the claims' files, which guard chips whose record cannot be read
    file: DevicesFile
    write_file: Callable[[], None]  # with the devices that it should have now
    flags: ShareFlagStep


class ResourcePlugin:
    """The devices of one resource; fulfils `kubelet.device_plugin.plugin.DevicePlugin`."""

    def __init__(self, resource: str, tools: AllocationDeps) -> None:
        self.resource = resource
        self.devices: Observable[Devices] = Observable(())
        self._tools = tools
        self._offered: Mapping[str, ResourceDevice] = {}

    def offer(self, devices: Sequence[ResourceDevice]) -> None:
        """Have just these devices from now on."""
        self._offered = {device.id: device for device in devices}
        self.devices.set(
            tuple(
                PluginDevice(id=id_, healthy=one.is_healthy, numa_node=one.chip.numa_node)
                for id_, one in self._offered.items()
            )
        )

    async def prefer(self, choice: Choice) -> Sequence[str]:
        """The best ids for a container."""
        places = {id_: place_of(one.chip, one.part) for id_, one in self._offered.items()}
        return preferred(places, choice.available, needed=choice.needed, size=choice.size)

    async def allocate(self, containers: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Record that a pod has the devices, and make sure that containers can get them.

        Returns:
            The CDI names for each container.

        Raises:
            AllocationRefused: A claim has one of these, it is not here any more, a process goes on
                using it, its chip cannot be shared now, or the disk fails.
        """
        devices = [[self._device(id_) for id_ in ids] for ids in containers]
        every = [device for given in devices for device in given]
        entries = [device.entry() for device in every]
        with self._tools.pods.allocating([entry.uid for entry in entries]):
            try:
                await self._wait_unused(entries)
                await self._hold(entries)
            except DriverError as error:
                raise AllocationRefused(str(error)) from error
        # Two shares of a chip have one name, which CDI takes once.
        return [
            list(dict.fromkeys(self._tools.file.name(one.cdi_name) for one in given))
            for given in devices
        ]

    def _device(self, id_: str) -> ResourceDevice:
        device = self._offered.get(id_)
        if device is None:
            known = ", ".join(self._offered) or "none"
            raise AllocationRefused(
                f"{id_} is no device of {self.resource} on this node any more (it has {known})"
            )
        return device

    async def _wait_unused(self, entries: Sequence[Entry]) -> None:
        """Wait until no process of an earlier pod uses the devices."""
        pods = self._tools.pods
        names = ""
        with trio.move_on_after(IN_USE_SECONDS):
            for entry in entries:
                names = ", ".join(entry.device_names)
                while await pods.is_in_use(entry):  # noqa: ASYNC110 - no event of the Ascend driver
                    await trio.sleep(_PAUSE_SECONDS)
            return
        raise AllocationRefused(
            f"{names} is still in use after {IN_USE_SECONDS:.0f} s: by a process of a pod that was "
            "deleted by force, or of no pod, which `npu-smi info` on the node shows; or the Ascend "
            "driver does not tell"
        )

    async def _hold(self, entries: Sequence[Entry]) -> None:
        """Record all entries, unless another holder has one; set the share flags they need."""
        ledger, flags = self._tools.ledger, self._tools.flags
        to_share = [entry for entry in entries if flags.is_needed(entry)]

        def put() -> None:
            # The kubelet knows before us that the last pod with a device has ended.
            others = [hold for other in ledger.by_uid.values() for hold in other.holds]
            for entry in entries:
                for hold in entry.holds:
                    refuse_if_held(hold, others, ledger, self._tools.cdi)
            self._tools.write_file()  # first: a container may lack what it needs
            for entry in entries:
                is_all = entry not in to_share
                ledger.put(entry if is_all else replace(entry, state=EntryState.INTENDED))

        def put_shared() -> None:
            for entry in to_share:
                ledger.put(entry)

        await ledger.within(put)
        if to_share:
            for entry in {entry.holds[0].nodes: entry for entry in to_share}.values():
                await flags.do(entry)
            await ledger.within(put_shared)
