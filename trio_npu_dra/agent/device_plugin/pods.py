"""What pods of device plugins hold, in the ledger beside what claims hold.

An allocation is noted before the kubelet gets its answer (`allocation`), and which pod it was for,
and that this has ended, is found out by looking at the kubelet's list of pods. The list is looked
at seldom while nothing depends on it, and a few times a minute while something does.

A device is taken back from a pod when lists have lacked it for some seconds and no process uses it.
Of a chip that pods share the last share alone waits for processes, because nobody can tell whose
they are; and it is *undoing* until the chip's share flag is reset. A kubelet that has just started
lists a pod only once it has got it from the API server, which may be away, and then it adds the
oldest first. So a list that lacks our own pod does not count, and after such a list, or none, the
seconds begin anew. Pods of Huawei's device plugin count too: that may have run here before us.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import trio

from trio_npu_dra.agent.claims.share_flag import ShareFlagStep
from trio_npu_dra.agent.device_plugin.device import ResourceDevice, partition_of
from trio_npu_dra.agent.device_plugin.names import is_huaweis, parse_id, whole_resource
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.hold import HolderKind, holds_of, node_of_pod
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import DriverError, KubeletSilent, StorageError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.device_plugin.pod_resources import PodDevice, PodResources

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
"""Between two looks at the list of pods while all is as it should be."""

SOON_SECONDS: Final = 5.0
"""The same while a pod is to be named, or a chip may be free."""

_STUCK_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodList:
    """The kubelet's list of pods.

    Attributes:
        read: Asks for all pods and what they have; raises KubeletSilent.
        own_pod: Name of our own pod, which a whole list has; None if we are in none.
        own_namespace: Its namespace, for others may have pods of that name; empty if not known.
    """

    read: Callable[[], Awaitable[PodResources]]
    own_pod: str | None = None
    own_namespace: str = ""


class PodHolds:
    """Keeps the ledger to what the kubelet says of pods.

    Args:
        ledger: Who holds what.
        board: The chips of this node.
        selection: Tells resources of ours.
        pods: The kubelet's list of pods.
        is_busy: Whether a process uses a chip, or a vNPU, with one of these device nodes of the
            host.
        flags: Takes back the share flags of chips.
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
        flags: ShareFlagStep,
        on_free: Callable[[Collection[str]], None],
    ) -> None:
        self.known = Observable(False)
        self._ledger = ledger
        self._board = board
        self._selection = selection
        self._pods = pods
        self._is_busy = is_busy
        self._flags = flags
        self._on_free = on_free
        self._under_way: set[str] = set()
        self._given_since: set[str] = set()  # the list that counts was asked for
        self._missing_since: dict[str, float] = {}
        self._has_gap = True
        self._looking = trio.Lock()
        self._wanted = trio.Event()
        self._problem = ""

    @property
    def given(self) -> tuple[ResourceDevice, ...]:
        """What pods have."""
        found = (
            ResourceDevice.of_entry(entry)
            for entry in self._ledger.by_uid.values()
            if entry.holder.kind is HolderKind.POD
        )
        return tuple(one for one in found if one is not None)

    @contextmanager
    def allocating(self, uids: Collection[str]) -> Iterator[None]:
        """Mark these holders as being allocated inside the block, and have pods listed soon after.

        Lists of pods that were requested before the end do not count for them.
        """
        self._under_way.update(uids)
        try:
            yield
        finally:
            self._under_way.difference_update(uids)
            self._given_since.update(uids)
            for uid in uids:
                self._missing_since.pop(uid, None)
            self._wanted.set()

    async def keep(self) -> None:
        """Look at the list of pods again and again, until cancelled."""
        while True:
            self._wanted = trio.Event()
            await self.refresh()
            with trio.move_on_after(LOOK_SECONDS if self._is_settled() else SOON_SECONDS):
                await self._wanted.wait()
                await trio.sleep(SOON_SECONDS)

    async def refresh(self) -> None:
        """Look once; what goes wrong is said once."""
        problem = ""
        async with self._looking:
            try:
                with watchdog.step("looking which pods have NPUs", limit=_STUCK_SECONDS):
                    await self._read_list()
            except (KubeletSilent, StorageError) as error:
                problem = str(error)
                self._forget_absences()
        if problem and problem != self._problem:
            log.warning("which pods have NPUs is not known", extra={"problem": problem})
        self._problem = problem

    def holders(self, resource: str) -> Mapping[int, tuple[str, str]]:
        """Namespace and name of the pod that has a chip of a resource, by physical id.

        Both are empty while it is not known which pod it is. What the last list lacked counts as
        free.
        """
        return {
            device.chip.physical_id: (entry.holder.namespace, entry.holder.name)
            for uid, entry in self._ledger.by_uid.items()
            if entry.holder.kind is HolderKind.POD and uid not in self._missing_since
            if (device := ResourceDevice.of_entry(entry)) is not None
            if device.resource == resource
        }

    async def _read_list(self) -> None:
        self._given_since.clear()
        listed = await self._pods.read()
        lacking = await self._record(listed)
        if not self._is_whole(listed):
            self._forget_absences()
            return
        self._has_gap = False
        await self._take_back(lacking)
        self.known.set(True)

    def _forget_absences(self) -> None:
        """The kubelet may start anew: what lists have lacked before says nothing."""
        self._has_gap = True
        self._missing_since = {}

    def _is_whole(self, listed: PodResources) -> bool:
        own, ours = self._pods.own_pod, self._pods.own_namespace
        return own is None or any(
            name == own and (not ours or namespace == ours) for namespace, name in listed.pods
        )

    def _is_settled(self) -> bool:
        return (
            self.known.value
            and not self._has_gap
            and not self._missing_since
            and all(
                self._selection.resource_of(one.chip) == whole_resource(one.resource)
                for one in self.given
            )
        )

    async def _record(self, listed: PodResources) -> set[str]:
        """Note who has what; returns the UIDs of those who have nothing any more by the list."""
        async with self._ledger.exclusive():
            found = self._found(listed)
            later = self._under_way | self._given_since
            for uid, entry in found.items():
                known = self._ledger.by_uid.get(uid)
                is_new = known is None or _told_by_list(known) != _told_by_list(entry)
                if is_new and uid not in later:
                    self._ledger.put(entry)
                    log.info(
                        "a pod has a device",
                        extra={"pod": str(entry), "devices": entry.device_names},
                    )
            pods = {
                uid
                for uid, entry in self._ledger.by_uid.items()
                if entry.holder.kind is HolderKind.POD
            }
            pods |= {uid for uid in self._ledger.unreadable if node_of_pod(uid)}
            return pods - found.keys() - later

    def _found(self, listed: PodResources) -> dict[str, Entry]:
        found = {}
        # A pod keeps what it has of a resource that the flag does not name any more. It does not
        # start again after a reboot, when the ledger is empty: no plugin has its devices then.
        known = {one.resource for one in self.given}
        for given in listed.devices:
            if (device := self._device_of(given, known)) is not None:
                entry = device.entry(namespace=given.namespace, pod=given.pod)
                found[entry.uid] = entry
        return found

    def _device_of(self, given: PodDevice, known: Collection[str]) -> ResourceDevice | None:
        """A device of ours, maybe by an earlier flag, or of Huawei's device plugin."""
        name = given.resource
        if not (is_huaweis(name) or self._selection.names(name) or name in known):
            return None
        told = parse_id(name, given.id)
        for chip in self._board.value.chips:
            if told is not None and chip.physical_id == told.physical_id:
                return ResourceDevice(
                    resource=name,
                    chip=chip,
                    share=told.share,
                    partition=partition_of(chip, told.vnpu),
                )
        return None

    async def _take_back(self, lacking: Collection[str]) -> None:
        """Take back what lists have lacked for some seconds and no process uses."""
        now, before = trio.current_time(), self._missing_since
        self._missing_since = {uid: before.get(uid, now) for uid in lacking}
        for uid in lacking:
            is_sure = now - self._missing_since.get(uid, now) >= SOON_SECONDS
            entry = self._ledger.by_uid.get(uid)
            if is_sure and entry is None:
                await self._forget_unreadable(uid)
            elif is_sure and entry is not None and not await self.is_in_use(entry):
                await self._release(uid)

    async def _forget_unreadable(self, uid: str) -> None:
        """Remove the record of a pod that has ended, which cannot be read."""
        node = node_of_pod(uid)
        if node is None or await self._is_busy({node}):
            return
        async with self._ledger.exclusive():
            is_missing = uid in self._missing_since and uid not in self._under_way
            if is_missing and uid in self._ledger.unreadable:
                self._ledger.remove(uid)

    async def is_in_use(self, entry: Entry) -> bool:
        """Whether a process may use what a record says, and what its last pod had."""
        partitions = {hold.partition.device_node for hold in entry.holds if hold.partition}
        if partitions:
            return await self._is_busy(partitions)
        # Others share the chip: it is not free in any case, and their processes are no sign of it.
        return not self._is_shared(entry) and await self._is_busy(_nodes(entry))

    def _is_shared(self, entry: Entry) -> bool:
        """Whether others have the same chips."""
        others = [hold for hold in self._ledger.holds.value if hold.holder.uid != entry.uid]
        return bool(holds_of(_nodes(entry), others))

    async def _release(self, uid: str) -> None:
        """Remove the record of a pod that has ended, once nothing is left of what it needed."""
        async with self._ledger.exclusive():
            entry = self._still_missing(uid)
            if entry is None:
                return
            if self._flags.is_needed(entry) and entry.state is not EntryState.UNDOING:
                entry = self._ledger.put(replace(entry, state=EntryState.UNDOING))
        if entry.state is EntryState.UNDOING:
            try:
                await self._flags.release(_nodes(entry))
            except DriverError:
                return  # the next look tries again; the repair of claims does too, and says it
        async with self._ledger.exclusive():
            entry = self._still_missing(uid)
            if entry is not None:
                self._missing_since.pop(uid)
                if not self._is_shared(entry) and not any(hold.partition for hold in entry.holds):
                    self._on_free(_nodes(entry))
                self._ledger.remove(uid)
                log.info(
                    "a pod has ended and its device is free",
                    extra={"pod": str(entry), "devices": entry.device_names},
                )

    def _still_missing(self, uid: str) -> Entry | None:
        """What a pod has that lists lack, unless it is given out again."""
        is_missing = uid in self._missing_since and uid not in self._under_way
        return self._ledger.by_uid.get(uid) if is_missing else None


def _nodes(entry: Entry) -> set[str]:
    """The device nodes of its chips."""
    return {node for hold in entry.holds for node in hold.nodes}


def _told_by_list(entry: Entry) -> object:
    """What a record says that a list of pods can tell."""
    return entry.holder, entry.allocation, entry.state
