"""One resource's devices for the kubelet: which there are, which are best, and to give them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from trio_npu_dra.agent.claims.cdi import CdiFolder
from trio_npu_dra.agent.claims.exclusion import refuse_if_held
from trio_npu_dra.agent.claims.share_flag import ShareFlagStep
from trio_npu_dra.agent.device_plugin.cdi_file import DevicesFile
from trio_npu_dra.agent.device_plugin.chooser import Chooser, ChosenChips
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.agent.device_plugin.names import device_id
from trio_npu_dra.agent.device_plugin.pods import PodHolds
from trio_npu_dra.agent.device_plugin.preferred import place_of, preferred
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.base.errors import AllocationRefused, DriverError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.device_plugin.plugin import Choice, Devices, PluginDevice

IN_USE_SECONDS: Final = 5.0
"""How long an allocation waits for the processes of a chip's last pod. The kubelet gives a chip
away at once when its pod is deleted by force, and ends the pod's containers within 2 s."""

_PAUSE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationDeps:
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

    def __init__(self, resource: str, tools: AllocationDeps) -> None:
        self._resource = resource
        self._tools = tools
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

    async def prefer(self, choice: Choice) -> Sequence[str]:
        """The ids that a container had best get; if its pod has to get certain chips, these."""
        places = {id_: place_of(one.chip, one.part) for id_, one in self._offered.items()}
        best = partial(preferred, places, needed=choice.needed, size=choice.size)
        for own in await self._chosen_ids(choice.size):
            found = best(own.intersection(choice.available))
            if found and own.issuperset(found):
                return found
        return best(choice.available)

    async def _chosen_ids(self, size: int) -> Sequence[frozenset[str]]:
        """The ids of what was chosen for pods that wait, of which a container wants so many."""
        chooser = self._tools.chooser
        if chooser is None:
            return ()
        # Not in `allocate`: a kubelet that lists pods while it waits for that may forget that it
        # has given the ids away (UpdateAllocatedDevices of its device manager).
        await self._tools.pods.refresh()
        try:
            choices = await chooser.choices(self._resource, size)
        except AllocationRefused:
            return ()  # `allocate` says it
        return [
            frozenset(device_id(self._resource, number) for number in chosen.numbers)
            for chosen in self._waiting(choices)
        ]

    async def allocate(self, containers: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Note that a pod has the devices, and make sure that containers can get them.

        Raises:
            AllocationRefused: The pod has to get other chips, a claim has one of them, it is not
                here any more, a process goes on using it, its chip cannot be shared now, or the
                disk fails.
        """
        devices = [[self._device(id_) for id_ in ids] for ids in containers]
        every = [device for given in devices for device in given]
        chosen = await self._chosen(every)
        owner = chosen.owner if chosen else ("", "")
        await self._hold([self._entry(device, owner) for device in every])
        if chosen is not None and not chosen.is_served and not self._waiting([chosen]):
            assert self._tools.chooser is not None
            self._tools.chooser.given(chosen, self._resource)
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

    def _entry(self, device: ResourceDevice, owner: tuple[str, str]) -> Entry:
        """What is noted at first; *intended* as long as something is left to do."""
        namespace, pod = owner
        entry = device.entry(namespace=namespace, pod=pod)
        is_all = not self._tools.flags.is_needed(entry)
        return entry if is_all else replace(entry, state=EntryState.INTENDED)

    async def _hold(self, entries: Sequence[Entry]) -> None:
        """Note that a pod has the devices, and do what has to be done to their chips."""
        with self._tools.pods.allocating([entry.uid for entry in entries]):
            try:
                await self._wait_unused(entries)
                await self._take(entries)
                await self._share(
                    [entry for entry in entries if entry.state is EntryState.INTENDED]
                )
            except DriverError as error:
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

    async def _take(self, entries: Sequence[Entry]) -> None:
        """Note all, unless somebody else has one."""
        ledger = self._tools.ledger
        async with ledger.exclusive():
            # Another pod that had a device has ended: the kubelet knows, and we may not yet.
            others = [hold for other in ledger.by_uid.values() for hold in other.holds]
            for entry in entries:
                for hold in entry.holds:
                    refuse_if_held(hold, others, ledger, self._tools.cdi)
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
                    self._tools.ledger.put(replace(entry, state=EntryState.READY))

    # --- what a scheduler has chosen -------------------------------------------------------------

    async def _chosen(self, devices: Sequence[ResourceDevice]) -> ChosenChips | None:
        """What was chosen for the pod that gets these; None if nothing was.

        Raises:
            AllocationRefused: Others were chosen, or nobody can tell.
        """
        chooser = self._tools.chooser
        if chooser is None or any(device.part is not None for device in devices):
            return None  # chips are chosen, not parts of them
        numbers = {device.chip.physical_id for device in devices}
        choices = await chooser.choices(self._resource, len(numbers))
        waiting = self._waiting(choices)
        # One that does not wait has another container, which gets what its init container had.
        for chosen in (*waiting, *choices):
            if numbers.issubset(chosen.numbers):
                return chosen
        if waiting:
            wanted, pod = _text(waiting[0].numbers), "/".join(waiting[0].owner)
            got, why = _text(sorted(numbers)), self._why_not(waiting[0])
            raise AllocationRefused(
                f"NPUs {wanted} were chosen for pod {pod}, and the kubelet gives {got} ({why}): "
                "delete the pod, so that NPUs are chosen anew"
            )
        return None

    def _waiting(self, choices: Iterable[ChosenChips]) -> list[ChosenChips]:
        """Those for pods that have not got their chips, whatever their authors write on them."""
        has = Counter(self._tools.pods.holders(self._resource).values())
        return [
            chosen
            for chosen in choices
            if not chosen.is_served and has[chosen.owner] < len(chosen.numbers)
        ]

    def _why_not(self, chosen: ChosenChips) -> str:
        """Why a pod does not get what was chosen for it."""
        holders = self._tools.pods.holders(self._resource)
        offered = {device.chip.physical_id: device for device in self._offered.values()}
        found = []
        for number in chosen.numbers:
            device = offered.get(number)
            holder = holders.get(number, chosen.owner)
            if holder != chosen.owner:
                found.append(f"{number} is held by {'/'.join(filter(None, holder)) or 'a pod'}")
            elif device is None or device.part is not None:
                found.append(f"{number} is not in {self._resource}")
            elif not device.is_healthy:
                found.append(f"{number} is not healthy")
        return ", ".join(found) or (
            "its Topology Manager wants these: set `topologyManagerPolicy: none` in its config"
        )


def _text(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
