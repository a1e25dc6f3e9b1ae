"""One resource's devices for the kubelet: which there are, which are best, and to give them out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import trio

from trio_npu_dra.claims.cdi import CdiFolder
from trio_npu_dra.claims.free import check_free
from trio_npu_dra.errors import AllocationRefused, KubeletSilent, NpuDraError
from trio_npu_dra.holds.ledger import Ledger
from trio_npu_dra.kubelet.device_plugin.plugin import Choice, Devices, PluginDevice
from trio_npu_dra.npu.model import Chip, HealthState
from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.cdi_file import DevicesFile
from trio_npu_dra.resources.chooser import Chooser, Chosen
from trio_npu_dra.resources.names import device_id
from trio_npu_dra.resources.pods import PodHolds, entry_of, holder_uid
from trio_npu_dra.resources.preferred import place_of, preferred


class ChipPlugin:
    """The chips of one resource; fulfils `kubelet.device_plugin.plugin.DevicePlugin`.

    Args:
        resource: Its name.
        ledger: Who holds what.
        pods: Finds out for whom an allocation was.
        cdi: The claims' files, which guard chips where a record cannot be read.
        file: Says what a container gets with a device.
        write_file: Makes that file right.
        chooser: Says which chips were chosen for a pod; None if the kubelet's choice counts.
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
        chooser: Chooser | None = None,
    ) -> None:
        self._resource = resource
        self._ledger = ledger
        self._pods = pods
        self._cdi = cdi
        self._file = file
        self._write_file = write_file
        self._chooser = chooser
        self._choosing = trio.Lock()
        self._chips: Mapping[str, Chip] = {}
        self._devices: Observable[Devices] = Observable(())

    @property
    def resource(self) -> str:
        """Its name."""
        return self._resource

    @property
    def devices(self) -> Observable[Devices]:
        """Its devices."""
        return self._devices

    def offer(self, chips: Sequence[Chip]) -> None:
        """Have just these chips from now on."""
        ids = self._pods.ids
        self._chips = {ids.id_of(self._resource, chip.physical_id): chip for chip in chips}
        self._devices.set(
            tuple(
                PluginDevice(id=id_, healthy=is_healthy(chip), numa_node=chip.numa_node)
                for id_, chip in self._chips.items()
            )
        )

    def prefer(self, choice: Choice) -> Sequence[str]:
        """The ids that a container had best get."""
        places = {id_: place_of(chip) for id_, chip in self._chips.items()}
        return preferred(places, choice.available, choice.needed, choice.size)

    async def allocate(self, containers: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Note that a pod has the chips, and make sure that containers can get them.

        Raises:
            AllocationRefused: A claim has one of them, it is not here any more, or the disk fails.
        """
        async with self._choosing:
            chosen = await self._chosen(containers) if self._chooser is not None else None
            if chosen is None:
                chips = [[self._chip(id_) for id_ in ids] for ids in containers]
                await self._hold([chip for some in chips for chip in some])
                return [[self._name(chip) for chip in some] for some in chips]
            return [await self._give(chosen, containers[0])]

    async def _hold(
        self, chips: Sequence[Chip], chosen: Chosen | None = None, ids: Sequence[str] = ()
    ) -> None:
        """Note that a pod has the chips; the one for which they were chosen, by *ids*, if any."""
        namespace, pod = chosen.owner if chosen else ("", "")
        entries = [entry_of(chip, self._resource, namespace=namespace, pod=pod) for chip in chips]
        self._pods.allocated([holder_uid(chip) for chip in chips])
        try:
            async with self._ledger.exclusive():
                # Another pod that had a chip has ended: the kubelet knows, and we may not yet.
                others = [hold for other in self._ledger.by_uid.values() for hold in other.holds]
                for entry in entries:
                    for hold in entry.holds:
                        check_free(hold, others, self._ledger, self._cdi)
                if chosen is not None:
                    self._pods.ids.change(self._resource, ids, chosen.numbers)
                for entry in entries:
                    self._ledger.put(entry)
                self._write_file()
        except NpuDraError as error:
            raise AllocationRefused(str(error)) from error

    async def _chosen(self, containers: Sequence[Sequence[str]]) -> Chosen | None:
        """What was chosen for the pod that this is for; None if it is for no such pod.

        Raises:
            AllocationRefused: Another pod has one of the chips, or it cannot be given out.
        """
        assert self._chooser is not None
        if len(containers) != 1:  # the kubelet asks for one at a time
            return None
        ids = containers[0]
        kubelets = {self._chip(id_).physical_id for id_ in ids}
        for chosen in await self._chooser.choices(self._resource, len(ids)):
            owners = await self._owners(set(chosen.numbers) - kubelets)
            if owners == {chosen.owner}:
                continue  # it has got them, and that could not be written on it
            if owners:
                names = " and ".join("/".join(owner) for owner in sorted(owners))
                raise AllocationRefused(f"{_about(chosen)}: {names} has one of them")
            return chosen
        return None

    async def _owners(self, numbers: Collection[int]) -> set[tuple[str, str]]:
        """Who has one of these chips, of which the kubelet has not said that they are free."""
        held = self._pods.entries.keys() & {
            chip.device_node for chip in self._chips.values() if chip.physical_id in numbers
        }
        if not held:
            return set()
        try:
            listed = await self._pods.owners()
        except KubeletSilent as error:
            raise AllocationRefused(str(error)) from error
        return {listed[node] for node in held if node in listed}

    async def _give(self, chosen: Chosen, ids: Sequence[str]) -> Sequence[str]:
        """Give a pod what was chosen for it, under the ids that the kubelet has given out."""
        assert self._chooser is not None
        by_number = {chip.physical_id: chip for chip in self._chips.values()}
        chips = [by_number[number] for number in chosen.numbers if number in by_number]
        if len(chips) < len(chosen.numbers) or not all(map(is_healthy, chips)):
            raise AllocationRefused(f"{_about(chosen)}: one of them is not there, or not healthy")
        try:
            await self._hold(chips, chosen, ids)
        finally:
            self.offer(list(self._chips.values()))  # under the ids that they have now
        self._chooser.given(chosen, self._resource, ids)
        return [self._name(chip) for chip in chips]

    def _name(self, chip: Chip) -> str:
        """The CDI name of a chip, which always means the same one."""
        return self._file.name(device_id(self._resource, chip.physical_id))

    def _chip(self, id_: str) -> Chip:
        chip = self._chips.get(id_)
        if chip is None:
            known = ", ".join(self._chips) or "none"
            raise AllocationRefused(
                f"{id_} is no device of {self._resource} on this node any more (it has {known})"
            )
        return chip


def _about(chosen: Chosen) -> str:
    numbers = ", ".join(map(str, chosen.numbers))
    return f"NPUs {numbers} were chosen for pod {chosen.namespace}/{chosen.pod}"


def is_healthy(chip: Chip) -> bool:
    """Whether new pods may get a chip; one whose health cannot be read is not given out."""
    return not chip.gone and chip.health.state is HealthState.HEALTHY
