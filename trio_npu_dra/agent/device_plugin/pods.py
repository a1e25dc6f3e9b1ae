"""The holds of device plugin pods, in the ledger beside those of claims.

An allocation is recorded before the kubelet gets its answer (`allocation`). The kubelet's list of
pods tells later which pod it was for, and that the pod has ended (docs/internals/device-plugin.md).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from trio_npu_dra.agent.device_plugin.device import ResourceDevice, partition_of
from trio_npu_dra.agent.device_plugin.names import is_huaweis, parse_id, whole_resource
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.hold import HolderKind, holds_of, node_of_pod
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.kit.base import disk, watchdog
from trio_npu_dra.kit.base.errors import DriverError, KubeletSilent, StorageError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.device_plugin.pod_resources import PodResources

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
"""Between two reads of the list of pods while nothing depends on it."""

SOON_SECONDS: Final = 5.0
"""Between two reads while a pod is not known, or a chip may be free."""

_STUCK_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodList:
    """The kubelet's list of pods."""

    # All pods and what they have; raises KubeletSilent.
    read: Callable[[], Awaitable[PodResources]]
    # Name of our own pod, which a complete list has; None outside of a pod.
    own_pod: str | None = None
    # Its namespace, as other namespaces may have a pod of that name; empty if not known.
    own_namespace: str = ""


@dataclass(eq=False, kw_only=True)
class PodHolds:
    """Keeps the ledger to what the kubelet says of pods."""

    ledger: Ledger
    board: Observable[Board]
    selection: Selection
    pods: PodList
    # Whether a process uses a chip, or a vNPU, with one of these device nodes of the host.
    is_busy: Callable[[Collection[str]], Awaitable[bool]]
    flags: ShareFlagStep
    # Gets the device nodes of chips that no process uses, before they are released.
    on_free: Callable[[Collection[str]], None]
    # Set here: the container of each listed device, by the UID of its holder.
    containers: Observable[Mapping[str, str]]

    def __post_init__(self) -> None:
        self.known = Observable(False)  # whether the kubelet has listed its pods once
        self._under_way: set[str] = set()
        self._given_since: set[str] = set()  # since the newest list was asked for
        self._missing_since: dict[str, float] = {}
        self._has_gap = True
        self._looking = trio.Lock()
        self._wanted = trio.Event()
        self._problem = ""

    @property
    def given(self) -> tuple[ResourceDevice, ...]:
        """The devices that pods have."""
        found = (
            ResourceDevice.of_entry(entry)
            for entry in self.ledger.by_uid.values()
            if entry.holder.kind is HolderKind.POD
        )
        return tuple(one for one in found if one is not None)

    @contextmanager
    def allocating(self, uids: Collection[str]) -> Iterator[None]:
        """Mark these holders as being allocated inside the block; list pods soon after it.

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
        """Read the list of pods again and again, until cancelled."""
        while True:
            self._wanted = trio.Event()
            await self.refresh()
            with trio.move_on_after(LOOK_SECONDS if self._is_settled() else SOON_SECONDS):
                await self._wanted.wait()
                await trio.sleep(SOON_SECONDS)

    async def refresh(self) -> None:
        """Read the list of pods; log a problem once while it lasts."""
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

    async def _read_list(self) -> None:
        self._given_since.clear()
        listed = await self.pods.read()
        lacking = await self._record(listed)
        if not self._is_whole(listed):
            self._forget_absences()
            return
        self._has_gap = False
        await self._take_back(lacking)
        self.known.set(True)

    def _forget_absences(self) -> None:
        """Count absences from zero: the kubelet may have restarted."""
        self._has_gap = True
        self._missing_since = {}

    def _is_whole(self, listed: PodResources) -> bool:
        own, ours = self.pods.own_pod, self.pods.own_namespace
        return own is None or any(
            name == own and (not ours or namespace == ours) for namespace, name in listed.pods
        )

    def _is_settled(self) -> bool:
        return (
            self.known.value
            and not self._has_gap
            and not self._missing_since
            and all(
                self.selection.resource_of(one.chip) == whole_resource(one.resource)
                for one in self.given
            )
        )

    async def _record(self, listed: PodResources) -> set[str]:
        """Record which pods have what; return the UIDs of recorded holders that the list lacks."""
        containers: dict[str, str] = {}

        def record() -> set[str]:
            found = self._found(listed, containers)
            later = self._under_way | self._given_since
            for uid, entry in found.items():
                known = self.ledger.by_uid.get(uid)
                is_new = known is None or _listed_part(known) != _listed_part(entry)
                if is_new and uid not in later:
                    self.ledger.put(entry)
                    log.info(
                        "a pod has a device",
                        extra={"pod": str(entry), "devices": entry.device_names},
                    )
            pods = {
                uid
                for uid, entry in self.ledger.by_uid.items()
                if entry.holder.kind is HolderKind.POD
            }
            pods |= {uid for uid in self.ledger.unreadable if node_of_pod(uid)}
            return pods - found.keys() - later

        lacking = await self.ledger.within(record)
        self.containers.set(containers)
        return lacking

    def _found(self, listed: PodResources, containers: dict[str, str]) -> dict[str, Entry]:
        """Entries for the listed devices: ours, maybe by an earlier flag, and Huawei's plugin's.

        Adds the container of each to *containers*. Both by the holder's UID.
        """
        found = {}
        # A pod keeps its devices of a resource that the flag does not name any more. It does not
        # start again after a reboot, when the ledger is empty: no plugin has its devices then.
        known = {one.resource for one in self.given}
        chips = {chip.physical_id: chip for chip in self.board.value.chips}
        for given in listed.devices:
            name = given.resource
            is_known = is_huaweis(name) or self.selection.names(name) or name in known
            parsed = parse_id(name, given.id) if is_known else None
            chip = chips.get(parsed.physical_id) if parsed else None
            if parsed and chip:
                partition = partition_of(chip, parsed.vnpu)
                device = ResourceDevice(
                    resource=name, chip=chip, share=parsed.share, partition=partition
                )
                entry = device.entry(namespace=given.namespace, pod=given.pod)
                found[entry.uid] = entry
                containers[entry.uid] = given.container
        return found

    async def _take_back(self, lacking: Collection[str]) -> None:
        """Release devices that lists have lacked for some seconds and no process uses."""
        now, before = trio.current_time(), self._missing_since
        self._missing_since = {uid: before.get(uid, now) for uid in lacking}
        for uid in lacking:
            if now - self._missing_since.get(uid, now) < SOON_SECONDS:
                continue
            entry = self.ledger.by_uid.get(uid)
            if entry is None:
                await self._forget_unreadable(uid)
            elif not await self.is_in_use(entry):
                await self._release(uid)

    async def _forget_unreadable(self, uid: str) -> None:
        """Remove the record of a pod that has ended, which cannot be read."""
        node = node_of_pod(uid)
        if node is None or await self.is_busy({node}):
            return

        def forget() -> None:
            if self._is_still_missing(uid) and uid in self.ledger.unreadable:
                self.ledger.remove(uid)

        await self.ledger.within(forget)

    async def is_in_use(self, entry: Entry) -> bool:
        """Whether a process of the device's last pod may still use it."""
        partitions = {hold.partition.device_node for hold in entry.holds if hold.partition}
        if partitions:
            return await self.is_busy(partitions)
        # While other pods share the chip, it is not free, and the processes may be theirs.
        return not self._is_shared(entry) and await self.is_busy(_nodes(entry))

    def _is_shared(self, entry: Entry) -> bool:
        """Whether another holder has one of the chips too."""
        others = [hold for hold in self.ledger.holds.value if hold.holder.uid != entry.uid]
        return bool(holds_of(_nodes(entry), others))

    async def _release(self, uid: str) -> None:
        """Remove the record of a pod that has ended, once its share flag is undone."""

        def begin() -> Entry | None:
            entry = self.ledger.by_uid.get(uid)
            if entry is None or not self._is_still_missing(uid):
                return None
            if self.flags.is_needed(entry) and entry.state is not EntryState.UNDOING:
                entry = self.ledger.put(replace(entry, state=EntryState.UNDOING))
            return entry

        entry = await self.ledger.within(begin)
        if entry is None:
            return
        if entry.state is EntryState.UNDOING:
            try:
                await self.flags.release(_nodes(entry))
            except DriverError:
                return  # the next read tries again; the repair of claims does too, and logs it
        async with self.ledger.exclusive():
            entry = self.ledger.by_uid.get(uid)
            if entry is not None and self._is_still_missing(uid):
                if not self._is_shared(entry) and not any(hold.partition for hold in entry.holds):
                    self.on_free(_nodes(entry))
                await disk.run(partial(self.ledger.remove, uid))
                self._missing_since.pop(uid, None)
                log.info(
                    "a pod has ended and its device is free",
                    extra={"pod": str(entry), "devices": entry.device_names},
                )

    def _is_still_missing(self, uid: str) -> bool:
        """Whether lists lack it and it has not been given out again."""
        return uid in self._missing_since and uid not in self._under_way


def _nodes(entry: Entry) -> set[str]:
    """The device nodes of its chips."""
    return {node for hold in entry.holds for node in hold.nodes}


def _listed_part(entry: Entry) -> object:
    """The part of a record that a list of pods can tell."""
    return entry.holder, entry.allocation, entry.state
