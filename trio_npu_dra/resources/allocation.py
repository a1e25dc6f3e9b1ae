"""One resource's devices for the kubelet: which there are, which are best, and to give them out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import trio

from trio_npu_dra.claims.cdi import CdiFolder
from trio_npu_dra.claims.free import check_free
from trio_npu_dra.claims.share_flag import ShareFlagStep
from trio_npu_dra.errors import AllocationRefused, KubeletSilent, NpuDraError
from trio_npu_dra.holds.entry import Entry, State
from trio_npu_dra.holds.ledger import Ledger
from trio_npu_dra.kubelet.device_plugin.plugin import Choice, Devices, PluginDevice
from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.cdi_file import DevicesFile
from trio_npu_dra.resources.chooser import Chooser, Chosen
from trio_npu_dra.resources.device import ResourceDevice
from trio_npu_dra.resources.pods import PodHolds
from trio_npu_dra.resources.preferred import place_of, preferred

IN_USE_SECONDS: Final = 5.0
"""How long an allocation waits for the processes of a chip's last pod. The kubelet gives a chip
away at once when its pod is deleted by force, and ends the pod's containers within 2 s."""

_PAUSE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the plugins of a node work with.

    Attributes:
        ledger: Who holds what.
        pods: Finds out for whom an allocation was, and what is in use.
        cdi: The claims' files, which guard chips where a record cannot be read.
        file: Says what a container gets with a device.
        write_file: Makes that file right.
        flags: Lets containers of several pods use a chip at once.
        chooser: Says which chips were chosen for a pod; None if the kubelet's choice counts.
    """

    ledger: Ledger
    pods: PodHolds
    cdi: CdiFolder
    file: DevicesFile
    write_file: Callable[[], None]
    flags: ShareFlagStep
    chooser: Chooser | None = None


class ResourcePlugin:
    """The devices of one resource; fulfils `kubelet.device_plugin.plugin.DevicePlugin`.

    Args:
        resource: Its name.
        tools: What it works with.
    """

    def __init__(self, resource: str, tools: Tools) -> None:
        self._resource = resource
        self._tools = tools
        self._allocating = trio.Lock()  # a choice changes what ids stand for
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
        ids = self._tools.pods.ids
        self._offered = {ids.id_of(device): device for device in devices}
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
            AllocationRefused: A claim has one of them, it is not here any more, a process goes on
                using it, its chip cannot be shared now, or the disk fails.
        """
        async with self._allocating:
            chosen = await self._chosen(containers)
            if chosen is not None:
                return [await self._give(chosen, containers[0])]
            devices = [[self._device(id_) for id_ in ids] for ids in containers]
            await self._hold([self._entry(one) for given in devices for one in given])
            return [self._names(given) for given in devices]

    def _names(self, devices: Sequence[ResourceDevice]) -> Sequence[str]:
        """The CDI names of what a container gets; of two shares of a chip one."""
        return list(dict.fromkeys(self._tools.file.name(one.cdi_name) for one in devices))

    def _device(self, id_: str) -> ResourceDevice:
        device = self._offered.get(id_)
        if device is None:
            known = ", ".join(self._offered) or "none"
            raise AllocationRefused(
                f"{id_} is no device of {self._resource} on this node any more (it has {known})"
            )
        return device

    # --- noting that a pod has them --------------------------------------------------------------

    def _entry(self, device: ResourceDevice, owner: tuple[str, str] = ("", "")) -> Entry:
        """What is noted at first; *intended* as long as something is left to do."""
        namespace, pod = owner
        entry = device.entry(namespace=namespace, pod=pod)
        is_all = not self._tools.flags.is_needed(entry)
        return entry if is_all else replace(entry, state=State.INTENDED)

    async def _hold(
        self, entries: Sequence[Entry], *, before: Callable[[], None] | None = None
    ) -> None:
        """Note that a pod has the devices, and do what has to be done to their chips.

        Args:
            entries: What is noted.
            before: Called in the critical section, when all of it is known to be free.
        """
        with self._tools.pods.allocating([entry.uid for entry in entries]):
            try:
                await self._wait_unused(entries)
                await self._take(entries, before)
                await self._share([entry for entry in entries if entry.state is State.INTENDED])
            except NpuDraError as error:
                raise AllocationRefused(str(error)) from error

    async def _wait_unused(self, entries: Sequence[Entry]) -> None:
        """Wait until no process uses the devices; the pod that had them may not have ended yet."""
        pods = self._tools.pods
        names = ""
        with trio.move_on_after(IN_USE_SECONDS):
            for entry in entries:
                names = ", ".join(entry.device_names)
                while await pods.is_in_use(entry):  # noqa: ASYNC110 - the Ascend driver tells nobody
                    await trio.sleep(_PAUSE_SECONDS)
            return
        raise AllocationRefused(
            f"{names} is still in use after {IN_USE_SECONDS:.0f} s: by a process of a pod that was "
            "deleted by force, or of no pod, which `npu-smi info` on the node shows; or the Ascend "
            "driver does not tell"
        )

    async def _take(self, entries: Sequence[Entry], before: Callable[[], None] | None) -> None:
        """Note all, unless somebody else has one."""
        ledger = self._tools.ledger
        async with ledger.exclusive():
            # Another pod that had a device has ended: the kubelet knows, and we may not yet.
            others = [hold for other in ledger.by_uid.values() for hold in other.holds]
            for entry in entries:
                for hold in entry.holds:
                    check_free(hold, others, ledger, self._tools.cdi)
            self._tools.pods.ids.note(self._resource)
            if before is not None:
                before()
            for entry in entries:
                ledger.put(entry)
            self._tools.write_file()

    async def _share(self, entries: Sequence[Entry]) -> None:
        """Let others use the chips at the same time, and note that all is done."""
        for entry in {entry.holds[0].nodes: entry for entry in entries}.values():
            await self._tools.flags.do(entry)
        if entries:
            async with self._tools.ledger.exclusive():
                for entry in entries:
                    self._tools.ledger.put(replace(entry, state=State.READY))

    # --- what somebody else has chosen -----------------------------------------------------------

    async def _chosen(self, containers: Sequence[Sequence[str]]) -> Chosen | None:
        """What was chosen for the pod that this is for; None if it is for no such pod.

        Raises:
            AllocationRefused: Another pod has one of the chips, or nobody can tell.
        """
        chooser = self._tools.chooser
        if chooser is None or len(containers) != 1:  # the kubelet asks for one at a time
            return None
        devices = [self._device(id_) for id_ in containers[0]]
        if any(device.part is not None for device in devices):
            return None  # chips are chosen, not parts of them
        kubelets = {device.chip.physical_id for device in devices}
        for chosen in await chooser.choices(self._resource, containers[0]):
            owners = await self._owners(set(chosen.numbers) - kubelets)
            problem = self._problem(chosen, owners)
            if not problem:
                return chosen
            # Who writes a pod writes its annotations: one that has chips waits for none, whatever
            # it says.
            if chosen.owner not in (await self._listed()).values():
                raise AllocationRefused(f"{_about(chosen)}: {problem}")
        return None

    def _problem(self, chosen: Chosen, owners: Collection[tuple[str, str]]) -> str:
        """Why a pod cannot get what was chosen for it; empty if it can."""
        if owners:
            names = " and ".join("/".join(owner) for owner in sorted(owners))
            return f"{names} has one of them"
        there = {
            device.chip.physical_id
            for device in self._offered.values()
            if device.part is None and device.is_healthy
        }
        return (
            "" if there.issuperset(chosen.numbers) else "one of them is not there, or not healthy"
        )

    async def _owners(self, numbers: Collection[int]) -> set[tuple[str, str]]:
        """Who has one of these chips, of which the kubelet has not said that they are free."""
        nodes = {
            device.chip.device_node
            for device in self._offered.values()
            if device.chip.physical_id in numbers
        }
        held = nodes & {given.chip.device_node for given in self._tools.pods.given}
        if not held:
            return set()
        listed = await self._listed()
        return {listed[node] for node in held if node in listed}

    async def _listed(self) -> Mapping[str, tuple[str, str]]:
        """Who has a chip, as the kubelet says."""
        try:
            return await self._tools.pods.owners()
        except KubeletSilent as error:
            raise AllocationRefused(str(error)) from error

    async def _give(self, chosen: Chosen, ids: Sequence[str]) -> Sequence[str]:
        """Give a pod what was chosen for it, under the ids that the kubelet has given out."""
        assert self._tools.chooser is not None
        whole = [device for device in self._offered.values() if device.part is None]
        by_number = {device.chip.physical_id: device for device in whole}
        devices = [by_number[number] for number in chosen.numbers]

        def change() -> None:
            self._tools.pods.ids.change(self._resource, ids, chosen.numbers)

        try:
            entries = [self._entry(device, chosen.owner) for device in devices]
            await self._hold(entries, before=change)
        finally:
            self.offer(list(self._offered.values()))  # under the ids that they have now
        self._tools.chooser.given(chosen, self._resource, ids)
        return self._names(devices)


def _about(chosen: Chosen) -> str:
    numbers = ", ".join(map(str, chosen.numbers))
    return f"NPUs {numbers} were chosen for pod {chosen.namespace}/{chosen.pod}"
