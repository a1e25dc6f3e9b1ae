"""The step that lets several containers use a claim's chips at once, by the chips' share flag.

Pods with shares by a device plugin need it as claims do (`device_plugin.allocation`,
`device_plugin.pods`).

The flag belongs to a chip, not to a claim: several claims with shares of one chip need it once. So
the driver records a chip before it sets the flag there. It clears the flag of recorded chips alone,
when no claim or pod holds them any more. A flag that an administrator has set stays.
"""

import logging
from collections.abc import AsyncIterator, Collection, Iterable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.hold import Hold
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotPermitted, NotSupported
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.share_flag import Card, ShareFlags, cards, is_in_use
from trio_npu_dra.kit.base import disk, storage
from trio_npu_dra.kit.base.errors import (
    ClaimError,
    ClaimUnavailable,
    DevicesUnknown,
    DriverError,
    ForeignFile,
)
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

_FILE: Final = "share-flags.json"


class _FlagsFile(BaseModel):
    """The chips on which this driver has set the flag, by die id, else by device node."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    version: int = 1
    chips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Users:
    """The holders of a card, as text; *observers* are those with admin access."""

    holders: list[str]
    observers: list[str]


class ShareFlagStep:
    """Sets the flag before containers start, and clears it after the last one; a `Step`.

    Args:
        ledger: All holds; the file of flags that this driver has set is beside its records.
        cdi: Has the devices of claims whose record cannot be read.
        board: The chips of this node.
        flags: Their flags.
        ours: Gets the keys of the chips whose flag this driver has set.
    """

    name: Final = "share-flag"

    def __init__(
        self,
        ledger: Ledger,
        cdi: CdiFolder,
        board: Observable[Board],
        flags: ShareFlags,
        ours: Observable[AbstractSet[str]] | None = None,
    ) -> None:
        self._ledger = ledger
        self._cdi = cdi
        self._board = board
        self._flags = flags
        self._ours = ours or Observable(frozenset())
        self._is_tidied = False
        self._path = ledger.state_folder / _FILE

    def is_needed(self, entry: Entry) -> bool:
        """Whether the claim has a chip that several containers may use."""
        return bool(_shared_nodes(entry))

    def is_lost(self, entry: Entry) -> bool:
        """Never: `tidy` sets a flag again, and running containers lose nothing without it."""
        del entry
        return False

    async def do(self, entry: Entry) -> None:
        """Set the flag of each shared chip.

        Raises:
            ClaimUnavailable: A chip is in use, or its Ascend driver does not answer.
            ClaimError: A chip cannot be shared at all.
            StorageError: The chips cannot be recorded.
        """
        async with self._alone() as flags:
            await self._set(flags, entry)

    async def undo(self, entry: Entry) -> None:
        """Clear the flag of each shared chip that has no other holder.

        Raises:
            ClaimUnavailable: A chip is still in use.
            StorageError: The chips cannot be recorded.
        """
        await self.release(_shared_nodes(entry))

    async def release(self, nodes: Collection[str]) -> None:
        """Clear the flag of chips, by device node, that have no holder but *undoing* ones.

        No holder waits for a chip that does not answer now: `tidy` clears its flag later.

        Raises:
            ClaimUnavailable: A chip is still in use.
            StorageError: The chips cannot be recorded.
        """
        if not self._board.value.chips:
            return
        async with self._alone() as flags:
            for card in cards(self._board.value, nodes):
                await self._clear(flags, card, is_letting_go=True)

    async def tidy(self) -> None:
        """Clear flags that no holder needs, and set flags that a holder lacks.

        Flags are left over after a claim whose record broke, after a die whose sister was in use,
        and after a reboot of a node that recovers flags. They are lacking after a reset of a chip.

        Raises:
            DriverError: Something failed; the next look tries again.
        """
        if not self._is_tidied:  # since the start: a killed writer left files
            await disk.run(partial(storage.remove_unfinished, self._path.parent, f"{_FILE}."))
            self._is_tidied = True
        ours = await self._read()
        if not self._board.value.chips or not (ours or self._lacking()):
            return
        problems: list[DriverError] = []
        async with self._alone() as flags:
            ours = await self._read()
            if ours != await disk.run(self._parse):
                await self._write(ours)  # a die id is known by now
            chips = (chip for chip in self._board.value.chips if chip.key in ours)
            due = [
                *(
                    partial(self._clear, flags, card)
                    for card in cards(self._board.value, [chip.device_node for chip in chips])
                ),
                *(partial(self._set, flags, entry) for entry in self._lacking()),
            ]
            for act in due:
                try:
                    await act()
                except DriverError as error:
                    problems.append(error)
        if problems:
            raise ClaimUnavailable("; ".join(map(str, problems)))

    def _lacking(self) -> list[Entry]:
        """The ready entries with a shared chip whose flag the Board says is not set."""
        unset = {
            chip.device_node
            for chip in self._board.value.chips
            if chip.device_share is False and chip.is_listed
        }
        return [
            entry
            for entry in self._ledger.by_uid.values()
            if entry.state is EntryState.READY and not _shared_nodes(entry).isdisjoint(unset)
        ]

    # --- under the lock of the flags --------------------------------------------------------------

    async def _set(self, flags: ShareFlags, entry: Entry) -> None:
        nodes = _shared_nodes(entry)
        shared = cards(self._board.value, nodes)
        if missing := nodes - {chip.device_node for card in shared for chip in card}:
            names = " and ".join(sorted(missing))
            raise ClaimUnavailable(f"{names} cannot be shared now: the chip does not answer")
        for card in shared:
            try:
                off = [chip for chip in card if not await flags.is_set(chip)]
                if off:
                    await self._write({*await self._read(), *(chip.key for chip in off)})
                for chip in off:
                    await flags.change(chip, is_set=True)
            except DcmiError as error:
                users = await self._users(card, but=entry.uid)
                raise await _explained(flags, card, error, users) from error
            if off:
                log.info(
                    "NPU is shared from now on",
                    extra={"chips": _names(off), "claim": str(entry), "uid": entry.uid},
                )

    async def _clear(self, flags: ShareFlags, card: Card, *, is_letting_go: bool = False) -> None:
        """Clear the flags that this driver has set on a card, unless one of its chips is held.

        Args:
            flags: The flags.
            card: The chips.
            is_letting_go: Whether it is no error that the chips do not answer.
        """
        ours = await self._read()
        if ours.isdisjoint(chip.key for chip in card):
            return
        users = await self._users(card)
        if users.holders:
            return
        cause: DcmiError | None = None
        try:
            set_by_us = [chip for chip in card if chip.key in ours]
            for chip in set_by_us:
                if chip.device_share or await _is_set(flags, chip):
                    await flags.change(chip, is_set=False)
            still = [chip for chip in set_by_us if await _is_set(flags, chip)]
        except DcmiError as error:
            cause, problem = error, await _explained(flags, card, error, users)
        else:
            if not still:
                await self._write(ours - {chip.key for chip in card})
                log.info("NPU is shared no longer", extra={"chips": _names(card)})
                return
            untrue = "stays shared although the Ascend driver says that it does not"
            problem = ClaimUnavailable(f"{_names(still)} {untrue}")
        # Holders with admin access may use the chip indefinitely, so no claim waits for them.
        is_awaited = cause is not None and is_in_use(cause) and not users.observers
        if is_awaited or not is_letting_go:
            raise problem from cause
        log.info("NPU stays shared for now", extra={"problem": str(problem)})

    async def _users(self, card: Card, *, but: str = "") -> _Users:
        """The users of a card's chips, except *but* and *undoing* ones: these have no container."""
        nodes = frozenset(chip.device_node for chip in card)

        def find() -> tuple[list[Hold], AbstractSet[str]]:
            holds = [
                hold
                for entry in self._ledger.by_uid.values()
                if entry.state is not EntryState.UNDOING
                for hold in entry.holds
                if hold.nodes & nodes
            ]
            return holds, self._ledger.unreadable - {but}

        holds, unreadable = await self._ledger.within(find)
        owners = [one for one in holds if one.holder.uid != but and not one.observer]
        observers = [f"{one.holder.titled} (admin access)" for one in holds if one.observer]
        unknown = (
            f"the claim with UID {uid}, whose record cannot be read"
            for uid in unreadable
            if self._cdi.hands_out(uid, nodes)
        )
        return _Users(
            holders=[*dict.fromkeys(one.holder.titled for one in owners), *unknown],
            observers=[*dict.fromkeys(observers)],
        )

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[ShareFlags]:
        """Be the only task that changes flags."""
        if not self._board.value.chips:
            raise DevicesUnknown("no NPU of the node is known yet: sharing one must wait")
        async with self._ledger.alone("share flags"):
            yield self._flags

    # --- the flags that this driver has set -----------------------------------------------

    async def _read(self) -> AbstractSet[str]:
        """The keys of the chips whose flag this driver has set.

        A chip is known by its device node until its die id is answered, and by that from then on.

        Raises:
            StorageError: The file cannot be read.
        """
        ours = await disk.run(self._parse)
        keys = {chip.device_node: chip.key for chip in self._board.value.chips}
        ours = frozenset(keys.get(key, key) for key in ours)
        self._ours.set(ours)
        return ours

    def _parse(self) -> AbstractSet[str]:
        try:
            return flags_set_by_driver(self._ledger.state_folder)
        except (ForeignFile, ValidationError):
            aside = self._path.with_name(f"{_FILE}.aside")
            with storage.translated(f"rename {self._path}"):
                self._path.rename(aside)
            log.error(
                "lost track of the share flags that the driver set: NPUs that are shared stay so "
                "until an administrator clears their flags",
                extra={"file": str(aside)},
            )
            return frozenset()

    async def _write(self, chips: Iterable[str]) -> None:
        """Record chips durably: the node may recover their flags after a power cut."""
        file = _FlagsFile(chips=tuple(sorted(chips)))

        def write() -> None:
            if file.chips:
                storage.write_atomic(self._path, file.model_dump_json().encode() + b"\n")
            else:
                storage.remove(self._path)
            storage.sync_folder(self._path.parent)

        await disk.run(write)
        self._ours.set(frozenset(file.chips))


def flags_set_by_driver(state_folder: Path) -> AbstractSet[str]:
    """The keys of the chips whose flag this driver has set.

    Args:
        state_folder: That of the `Ledger`.

    Raises:
        ValidationError: The file is not one of this driver's.
        StorageError: It cannot be read.
    """
    data = storage.read_bytes(state_folder / _FILE)
    return frozenset(_FlagsFile.model_validate_json(data).chips) if data else frozenset()


def _shared_nodes(entry: Entry) -> frozenset[str]:
    """The host device nodes of chips that several containers may use, by shares or by config."""
    by_config = {device.device for device in entry.devices if device.config.shared}
    return frozenset(
        node
        for hold in entry.holds
        if not hold.observer and not hold.partition
        if hold.share is not None or hold.device in by_config
        for node in hold.nodes
    )


async def _is_set(flags: ShareFlags, chip: Chip) -> bool:
    try:
        return await flags.is_set(chip)
    except NotSupported:
        return False


async def _explained(flags: ShareFlags, card: Card, error: DcmiError, users: _Users) -> ClaimError:
    """The problem with the flag of a card, for the owner of the claim's pod."""
    names = _names(card)
    if isinstance(error, NotSupported):
        return ClaimError(f"{names} cannot be shared by containers: {error}")
    if isinstance(error, NotPermitted):
        return ClaimError(f"this driver may not change whether {names} is shared: {error}")
    if not is_in_use(error):
        return ClaimUnavailable(f"the share flag of {names} cannot be changed: {error}")
    processes: list[int] = []
    for chip in card:
        with suppress(DcmiError):
            processes += await flags.processes(chip)
    words = [f"process {pid}" for pid in dict.fromkeys(processes)]
    who = ", ".join([*words, *users.holders, *users.observers])
    return ClaimUnavailable(
        f"the share flag of {names} changes only while nobody uses it, and it is in use by "
        f"{who or 'a container whose processes are not told'} ({error})"
    )


def _names(chips: Collection[Chip]) -> str:
    return " and ".join(chip.name for chip in chips)
