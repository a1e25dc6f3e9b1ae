"""What pods of device plugins hold, in the ledger beside what claims hold.

An allocation is noted before the kubelet gets its answer (`allocation`), and which pod it was for,
and that this has ended, is found out by looking at the kubelet's list of pods. The list is looked
at seldom while nothing depends on it, and a few times a minute while something does.

A chip is taken back from a pod when lists have lacked it for some seconds and no process uses it. A
kubelet that has just started lists a pod only once it has got it from the API server, which may be
away; so a list that lacks our own pod does not count. Pods of Huawei's device plugin count too:
that may have run here before us.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import trio

from trio_npu_dra import pulse
from trio_npu_dra.errors import KubeletSilent, StorageError
from trio_npu_dra.holds.entry import Allocated, Entry, HeldDevice, State
from trio_npu_dra.holds.hold import Holder, HolderKind
from trio_npu_dra.holds.ledger import Ledger
from trio_npu_dra.kubelet.device_plugin.pod_resources import PodDevice, PodResources
from trio_npu_dra.npu.model import Board, Chip
from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.names import is_huaweis, physical_id
from trio_npu_dra.resources.selection import Selection

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
"""Between two looks at the list of pods while all is as it should be."""

SOON_SECONDS: Final = 5.0
"""The same while a pod is to be named, or a chip may be free."""

_STUCK_SECONDS: Final = 120.0


def holder_uid(chip: Chip) -> str:
    """The name of ours for whoever has a chip by a device plugin."""
    return f"pod-of-{chip.name}"


def entry_of(chip: Chip, resource: str, *, namespace: str = "", pod: str = "") -> Entry:
    """A chip in the hands of a pod, which may not be known yet."""
    uid = holder_uid(chip)
    holder = Holder(kind=HolderKind.POD, namespace=namespace, name=pod, uid=uid)
    given = Allocated(requests=(resource,), pool=resource, device=chip.name)
    return Entry(holder=holder, state=State.READY, allocation=(given,), devices=(device_of(chip),))


def device_of(chip: Chip) -> HeldDevice:
    """What a chip gives to a container."""
    nodes = {chip.device_node: chip.device_node}
    return HeldDevice(device=chip.name, family=chip.family, nodes=nodes, chips=(chip,))


def resource_of(entry: Entry) -> str:
    """The resource by which a pod got its chip."""
    return entry.allocation[0].pool


@dataclass(frozen=True, slots=True, kw_only=True)
class PodList:
    """The kubelet's list of pods.

    Attributes:
        read: Asks for all pods and what they have; raises KubeletSilent.
        own_pod: Name of our own pod, which a whole list has; None if we are in none.
    """

    read: Callable[[], Awaitable[PodResources]]
    own_pod: str | None = None


class PodHolds:
    """Keeps the ledger to what the kubelet says of pods.

    Args:
        ledger: Who holds what.
        board: The chips of this node.
        selection: Tells resources of ours.
        pods: The kubelet's list of pods.
        is_busy: Whether a process uses a chip with one of these device nodes of the host.
        on_free: Told the device nodes of chips that are taken back, which no process uses, before
            they are free.

    Attributes:
        known: Whether the kubelet has been asked; before, nobody can tell what is free.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        board: Observable[Board],
        selection: Selection,
        pods: PodList,
        is_busy: Callable[[Collection[str]], Awaitable[bool]],
        on_free: Callable[[Collection[str]], None],
    ) -> None:
        self.known = Observable(False)
        self._ledger = ledger
        self._board = board
        self._selection = selection
        self._pods = pods
        self._is_busy = is_busy
        self._on_free = on_free
        self._missing_since: dict[str, float] = {}
        self._looking = trio.Lock()
        self._wanted = trio.Event()
        self._problem = ""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """What pods have, by the chip's host device node."""
        return MappingProxyType(
            {
                node: entry
                for entry in self._ledger.by_uid.values()
                if entry.holder.kind is HolderKind.POD
                for hold in entry.holds
                for node in hold.nodes
            }
        )

    def allocated(self, uids: Collection[str]) -> None:
        """Note that these chips were given to a pod just now; it is looked for soon."""
        for uid in uids:
            self._missing_since.pop(uid, None)
        self._wanted.set()

    async def keep(self) -> None:
        """Look at the list of pods again and again, without end."""
        while True:
            self._wanted = trio.Event()
            await self.look()
            with trio.move_on_after(LOOK_SECONDS if self._is_settled() else SOON_SECONDS):
                await self._wanted.wait()
                await trio.sleep(SOON_SECONDS)

    async def look(self) -> None:
        """Look once; what goes wrong is said once."""
        problem = ""
        async with self._looking:
            try:
                with pulse.step("looking which pods have NPUs", limit=_STUCK_SECONDS):
                    await self._look()
            except (KubeletSilent, StorageError) as error:
                problem = str(error)
        if problem and problem != self._problem:
            log.warning("which pods have NPUs is not known", extra={"problem": problem})
        self._problem = problem

    async def _look(self) -> None:
        listed = await self._pods.read()
        lacking = await self._note(listed)
        own = self._pods.own_pod
        if own is None or any(name == own for _, name in listed.pods):
            await self._take_back(lacking)
            self.known.set(True)

    def _is_settled(self) -> bool:
        return (
            self.known.value
            and not self._missing_since
            and all(self._is_where_it_belongs(entry) for entry in self.entries.values())
        )

    def _is_where_it_belongs(self, entry: Entry) -> bool:
        """Whether its chip is to stay in the resource that the pod got it by."""
        return all(
            self._selection.resource_of(chip) == resource_of(entry)
            for device in entry.devices
            for chip in device.chips
        )

    async def _note(self, listed: PodResources) -> dict[str, Entry]:
        """Note who has what; returns what nobody has any more by the list, by UID."""
        found = self._found(listed)
        async with self._ledger.exclusive():
            for uid, entry in found.items():
                known = self._ledger.by_uid.get(uid)
                if known is None or (known.holder, known.allocation) != (
                    entry.holder,
                    entry.allocation,
                ):
                    self._ledger.put(entry)
                    log.info(
                        "a pod has a device",
                        extra={"pod": str(entry), "devices": entry.device_names},
                    )
            return {
                uid: entry
                for uid, entry in self._ledger.by_uid.items()
                if entry.holder.kind is HolderKind.POD and uid not in found
            }

    def _found(self, listed: PodResources) -> dict[str, Entry]:
        chips = {chip.physical_id: chip for chip in self._board.value.chips}
        found = {}
        for given in listed.devices:
            chip = chips.get(self._chip_of(given))
            if chip is not None:
                found[holder_uid(chip)] = entry_of(
                    chip, given.resource, namespace=given.namespace, pod=given.pod
                )
        return found

    def _chip_of(self, given: PodDevice) -> int:
        """The physical id of a device of ours, or of Huawei's device plugin; else -1."""
        if not is_huaweis(given.resource) and not self._selection.names(given.resource):
            return -1
        number = physical_id(given.resource, given.id)
        return -1 if number is None else number

    async def _take_back(self, lacking: Mapping[str, Entry]) -> None:
        """Take back what lists have lacked for some seconds and no process uses."""
        now, before = trio.current_time(), self._missing_since
        self._missing_since = {uid: before.get(uid, now) for uid in lacking}
        for uid, entry in lacking.items():
            nodes = {node for hold in entry.holds for node in hold.nodes}
            is_sure = now - self._missing_since.get(uid, now) >= SOON_SECONDS
            if is_sure and not await self._is_busy(nodes):
                async with self._ledger.exclusive():
                    if self._missing_since.pop(uid, None) is not None:  # else it is given out again
                        self._on_free(nodes)
                        self._ledger.remove(uid)
                        log.info(
                            "a pod has ended and its device is free",
                            extra={"pod": str(entry), "devices": entry.device_names},
                        )
