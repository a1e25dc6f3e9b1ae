"""One resource's devices for the kubelet: which there are, which are best, and to give them out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

import trio

from trio_npu_dra.claims.cdi import CdiFolder
from trio_npu_dra.claims.free import check_free
from trio_npu_dra.errors import AllocationRefused, NpuDraError
from trio_npu_dra.holds.ledger import Ledger
from trio_npu_dra.kubelet.device_plugin.plugin import Choice, Devices, PluginDevice
from trio_npu_dra.npu.model import Chip, HealthState
from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.cdi_file import DevicesFile
from trio_npu_dra.resources.names import device_id
from trio_npu_dra.resources.pods import PodHolds, entry_of, holder_uid
from trio_npu_dra.resources.preferred import place_of, preferred

IN_USE_SECONDS: Final = 5.0
"""How long an allocation waits for the processes of a chip's last pod. The kubelet gives a chip
away at once when its pod is deleted by force, and ends the pod's containers within 2 s."""

_PAUSE_SECONDS: Final = 0.1


class ChipPlugin:
    """The chips of one resource; fulfils `kubelet.device_plugin.plugin.DevicePlugin`.

    Args:
        resource: Its name.
        ledger: Who holds what.
        pods: Finds out for whom an allocation was.
        cdi: The claims' files, which guard chips where a record cannot be read.
        file: Says what a container gets with a device.
        write_file: Makes that file right.
        is_busy: Whether a process uses a chip with one of these device nodes of the host.
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
        is_busy: Callable[[Collection[str]], Awaitable[bool]],
    ) -> None:
        self._resource = resource
        self._ledger = ledger
        self._pods = pods
        self._cdi = cdi
        self._file = file
        self._write_file = write_file
        self._is_busy = is_busy
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
        self._chips = {device_id(self._resource, chip.physical_id): chip for chip in chips}
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
            AllocationRefused: A claim has one of them, it is not here any more, a process goes on
                using it, or the disk fails.
        """
        chips = [self._chip(id_) for ids in containers for id_ in ids]
        await self._wait_unused(chips)
        entries = [entry_of(chip, self._resource) for chip in chips]
        self._pods.allocated([holder_uid(chip) for chip in chips])
        try:
            async with self._ledger.exclusive():
                # Another pod that had a chip has ended: the kubelet knows, and we may not yet.
                others = [hold for other in self._ledger.by_uid.values() for hold in other.holds]
                for entry in entries:
                    for hold in entry.holds:
                        check_free(hold, others, self._ledger, self._cdi)
                for entry in entries:
                    self._ledger.put(entry)
                self._write_file()
        except NpuDraError as error:
            raise AllocationRefused(str(error)) from error
        return [[self._file.name(id_) for id_ in ids] for ids in containers]

    async def _wait_unused(self, chips: Sequence[Chip]) -> None:
        """Wait until no process uses the chips; the pod that had them may not have ended yet."""
        nodes = {chip.device_node for chip in chips}
        with trio.move_on_after(IN_USE_SECONDS):
            while await self._is_busy(nodes):  # noqa: ASYNC110 - the Ascend driver tells nobody
                await trio.sleep(_PAUSE_SECONDS)
            return
        names = ", ".join(device_id(self._resource, chip.physical_id) for chip in chips)
        raise AllocationRefused(
            f"a process uses {names}, and has not ended for {IN_USE_SECONDS:.0f} s: it may be one "
            "of a pod that was deleted by force, or of no pod; `npu-smi info` on the node shows it"
        )

    def _chip(self, id_: str) -> Chip:
        chip = self._chips.get(id_)
        if chip is None:
            known = ", ".join(self._chips) or "none"
            raise AllocationRefused(
                f"{id_} is no device of {self._resource} on this node any more (it has {known})"
            )
        return chip


def is_healthy(chip: Chip) -> bool:
    """Whether new pods may get a chip; one whose health cannot be read is not given out."""
    return not chip.gone and chip.health.state is HealthState.HEALTHY
