"""Holds of claims are taken, finished and undone here, as the table of `transitions` says.

Who gets what is decided in the critical section of the node, for all claims of a call in their
order. A claim that needs no step is dealt with there to the end: there is no checkpoint between its
record and its CDI file, so that a cancelled call has both or none. Steps run outside, under a lock
of their claim, one task of the node at a time; the critical section is then entered only to change
the record.

What a death, a full disk or a cancelled call can leave of a claim:

- nothing;
- an *intended* or *undoing* record, perhaps some steps, perhaps a CDI file. The next call about the
  claim goes on from there, and so does the repair;
- a *ready* record without its CDI file, when that could not be written. The claim holds its NPUs,
  and the repair writes the file. The record is not taken back: had the answer been lost instead, a
  pod might run already;
- a *ready* record and its CDI file.

What a step did can be lost later. Its claim is then *intended* again, from that step on.

Only a node crash can leave a CDI file without a record; the repair removes it.

Disk work runs on the event loop, not in a thread. It is one short fsync a claim; it keeps
checkpoints, and so cancellation, out of the critical section; and the folder is on the kubelet's
own disk: when that stalls, the kubelet's checkpoints stall with ours and nobody waits for us.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from trio_npu_dra.agent.claims.cdi import CdiFolder
from trio_npu_dra.agent.claims.exclusion import refuse_if_held
from trio_npu_dra.agent.claims.side_by_side import side_by_side
from trio_npu_dra.agent.claims.step_locks import PATIENCE_SECONDS, StepLocks
from trio_npu_dra.agent.claims.steps import Step, Steps
from trio_npu_dra.agent.claims.transitions import TRANSITIONS, Action, Goal, situation
from trio_npu_dra.agent.holds.encoding import with_devices
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.base.errors import (
    ClaimUnavailable,
    DeviceHeld,
    DriverError,
    HoldGone,
    StorageError,
)

log = logging.getLogger(__name__)

_CHANGES_DEVICES: Final = {Action.TAKE, Action.REPLACE}
_ABOUT_STEPS: Final = {Action.FINISH, Action.REPLACE, Action.UNDO}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a claim is to hold.

    Attributes:
        entry: Its devices and their edits; *ready*, without steps.
        is_fresh: Whether the node was looked at for it; else it is what the ledger had.
    """

    entry: Entry
    is_fresh: bool = True


Outcome = Entry | DriverError | None
"""The claim's entry, None if it has none any more, or what went wrong."""


class ClaimLifecycle:
    """The holds of this node's claims.

    Args:
        ledger: Who holds what.
        cdi: Where the container runtime finds what a claim gives.
        steps: What may have to be done for a claim besides, in order.
    """

    def __init__(self, ledger: Ledger, cdi: CdiFolder, steps: Sequence[Step] = ()) -> None:
        self._ledger = ledger
        self._cdi = cdi
        self._steps = Steps(steps)
        self._locks = StepLocks(ledger.state_folder, is_kept=self._has_steps)

    async def prepare(self, wanted: Mapping[str, Wanted]) -> dict[str, Outcome]:
        """Try once to prepare claims, given by UID; of two for one device the first has it."""
        await self.repair(self._left_on(one.entry for one in wanted.values()))
        return await self._try(Goal.PREPARE, wanted)

    async def unprepare(self, uids: Sequence[str]) -> dict[str, Outcome]:
        """Try once to undo what was done for claims; one that was never prepared is fine."""
        return await self._try(Goal.UNPREPARE, dict.fromkeys(uids))

    def sweep_locks(self) -> None:
        """Remove the locks of claims that are gone.

        Raises:
            StorageError: Their folder cannot be read.
        """
        self._locks.sweep()

    async def repair(self, uids: Sequence[str]) -> dict[str, Outcome]:
        """Try once to finish or undo what a call left half done."""
        return await self._try(Goal.REPAIR, dict.fromkeys(uids))

    async def _try(self, goal: Goal, claims: Mapping[str, Wanted | None]) -> dict[str, Outcome]:
        if not claims:
            return {}
        try:
            async with self._ledger.exclusive():
                actions = {uid: self._action(goal, uid, one) for uid, one in claims.items()}
                later = {uid for uid, action in actions.items() if self._takes_steps(uid, action)}
                outcomes = self._at_once(actions, claims, later)
        except StorageError as error:
            return dict.fromkeys(claims, error)
        later |= {uid for uid, one in outcomes.items() if _is_intended(one)}
        due = {uid: one for uid, one in claims.items() if uid in later}
        return outcomes | await side_by_side(partial(self._stepwise, goal), due)

    def _takes_steps(self, uid: str, action: Action) -> bool:
        """Whether an action does or undoes steps that were begun."""
        return action in _ABOUT_STEPS and self._has_steps(uid)

    def is_whole(self, entry: Entry) -> bool:
        """Whether a claim is ready, and nothing that was done for it is lost."""
        return entry.state is EntryState.READY and self._steps.lost(entry) is None

    def _action(self, goal: Goal, uid: str, wanted: Wanted | None) -> Action:
        entry = self._ledger.by_uid.get(uid)
        found = situation(
            entry,
            wanted.entry.allocation if wanted else None,
            is_unreadable=uid in self._ledger.unreadable,
            is_whole=entry is not None and self.is_whole(entry),
        )
        action = TRANSITIONS[found][goal]
        is_stale = wanted is not None and not wanted.is_fresh
        return Action.REFUSE if is_stale and action in _CHANGES_DEVICES else action

    def _left_on(self, entries: Iterable[Entry]) -> list[str]:
        """The vNPUs that other claims have left on chips of *entries*, which keep these waiting."""
        left = [
            entry
            for entry in self._ledger.by_uid.values()
            if entry.holder.kind is HolderKind.LEFTOVER
        ]
        nodes = {node for entry in entries for hold in entry.holds for node in hold.nodes}
        return [one.uid for one in left if any(nodes & hold.nodes for hold in one.holds)]

    # --- what takes no time; all inside the critical section --------------------------------------

    def _at_once(
        self,
        actions: Mapping[str, Action],
        claims: Mapping[str, Wanted | None],
        later: AbstractSet[str],
    ) -> dict[str, Outcome]:
        """Do all but what is for *later*; a claim that needs steps is *intended* then."""
        outcomes: dict[str, Outcome] = {}
        moving = {
            uid
            for uid, wanted in claims.items()
            if actions[uid] is Action.REPLACE and uid not in later and wanted
            if _held_objects(self._ledger.by_uid[uid]) != _held_objects(wanted.entry)
        }
        # All let go before any takes: a device may move between claims of one call. Who keeps its
        # chips lets nothing go: its record was perhaps only written in another way.
        for uid in moving:
            try:
                self._let_go(uid)
            except StorageError as error:
                outcomes[uid] = error
        for uid, action in actions.items():
            if uid not in outcomes and uid not in later:
                try:
                    outcomes[uid] = self._act(action, uid, claims[uid], moving - outcomes.keys())
                except DriverError as error:
                    outcomes[uid] = error
        return outcomes

    def _act(
        self, action: Action, uid: str, wanted: Wanted | None, moving: AbstractSet[str]
    ) -> Entry | None:
        """Do it.

        Raises:
            HoldGone: The claim has to be read anew.
            DriverError: It failed.
        """
        if action is Action.REFUSE:
            who = wanted.entry if wanted else uid
            raise HoldGone(f"claim {who} has just been unprepared by another call")
        if action in _CHANGES_DEVICES:
            assert wanted is not None, "only a prepare takes"
            entry = self._take(wanted, moving)
            if entry.state is EntryState.READY:
                self._write_cdi(entry)
            return entry
        if action is Action.FINISH:
            entry = self._ledger.by_uid[uid]
            self._write_cdi(entry)
            return self._ledger.put(_ready(entry))
        if action is Action.SHOW:
            return self._show(self._ledger.by_uid[uid], wanted)
        if action is Action.UNDO:
            self._cdi.remove(uid)
            self._ledger.remove(uid)
        return None

    def _let_go(self, uid: str) -> None:
        entry = self._ledger.by_uid[uid]
        if entry.state is not EntryState.UNDOING:
            self._ledger.put(replace(entry, state=EntryState.UNDOING))
        self._cdi.remove(uid)

    def _show(self, entry: Entry, wanted: Wanted | None) -> Entry:
        """See that record and CDI file say what was found out last of the chips that are held.

        Facts of other chips, which go by the name now, are left: a pod may use those that are held.
        So are the ids of vNPUs, which a step found out.
        """
        if wanted is not None and wanted.entry.edits is not None:
            found = wanted.entry
            is_new = found.edits != entry.edits or not entry.knows_its_chips
            is_held = _held_objects(found) == _held_objects(entry) and not entry.outlasts_boot
            if is_new and is_held and (wanted.is_fresh or entry.edits is None):
                entry = self._ledger.put(with_devices(entry, found.devices, wanted.entry.edits))
        if wanted is not None and entry.doubted:
            entry = self._ledger.put(replace(entry, doubted=False))
        self._write_cdi(entry)
        return entry

    # --- one claim with steps ---------------------------------------------------------------------

    async def _stepwise(self, goal: Goal, uid: str, wanted: Wanted | None) -> Outcome:
        patience = 0.0 if goal is Goal.REPAIR else PATIENCE_SECONDS
        try:
            async with self._locks.hold(uid, patience_seconds=patience):
                return await self._go_on(goal, uid, wanted)
        except DriverError as error:
            return error

    async def _go_on(self, goal: Goal, uid: str, wanted: Wanted | None) -> Entry | None:
        """Do for one claim what the table says, all the way.

        Raises:
            DriverError: Something failed; the record says how far it got.
        """
        async with self._ledger.exclusive():
            action = self._action(goal, uid, wanted)
            is_about_steps = self._takes_steps(uid, action)
            if is_about_steps:
                entry = self._ledger.by_uid[uid]
                self._steps.by_name(entry.steps)  # before anything is changed
                if action is Action.FINISH:
                    entry = self._without_lost_steps(entry)
                elif entry.state is not EntryState.UNDOING:
                    entry = self._ledger.put(replace(entry, state=EntryState.UNDOING))
            else:
                acted = self._act(action, uid, wanted, frozenset())
                if acted is None or acted.state is EntryState.READY:
                    return acted
                entry = acted
        if is_about_steps and action is not Action.FINISH:
            await self._undo_steps(entry)
            async with self._ledger.exclusive():
                if wanted is None:
                    self._ledger.remove(uid)
                    return None
                entry = self._take(wanted, {uid})
        return await self._do_steps(entry)

    def _without_lost_steps(self, entry: Entry) -> Entry:
        """Note that a claim that is ready is so no more, if work of a step is lost."""
        lost = self._steps.lost(entry) if entry.state is EntryState.READY else None
        if lost is None:
            return entry
        self._cdi.remove(entry.uid)
        left = entry.steps[: entry.steps.index(lost.name) + 1]
        log.warning(
            "what was done for a claim is lost and is done again",
            extra={"claim": str(entry), "uid": entry.uid, "step": lost.name},
        )
        return self._ledger.put(replace(entry, state=EntryState.INTENDED, steps=left))

    async def _do_steps(self, entry: Entry) -> Entry:
        """Do the steps that are left, then CDI, then ready."""
        done = entry.steps[:-1]  # the last may be half done
        for step in self._steps.needed(entry):
            if step.name in done:
                continue
            if step.name not in entry.steps:
                entry = await self._put(replace(entry, steps=(*entry.steps, step.name)))
            await step.do(entry)
            entry = self._ledger.entry(entry.uid)  # it may have put there what it found out
        self._write_cdi(entry)
        return entry if entry.state is EntryState.READY else await self._put(_ready(entry))

    async def _undo_steps(self, entry: Entry) -> None:
        """CDI first, so that no container starts with what is taken apart; then steps backwards."""
        self._cdi.remove(entry.uid)
        for step in reversed(self._steps.by_name(entry.steps)):
            await step.undo(entry)
            entry = self._ledger.entry(entry.uid)
            if len(entry.steps) > 1:  # that all are undone is told by what becomes of the record
                entry = await self._put(replace(entry, steps=entry.steps[:-1]))

    def _has_steps(self, uid: str) -> bool:
        entry = self._ledger.by_uid.get(uid)
        return entry is not None and bool(entry.steps)

    async def _put(self, entry: Entry) -> Entry:
        async with self._ledger.exclusive():
            return self._ledger.put(entry)

    # --- inside the critical section --------------------------------------------------------------

    def _take(self, wanted: Wanted, moving: AbstractSet[str]) -> Entry:
        """Record that a claim holds its devices, unless somebody else does.

        Args:
            wanted: What it is to hold.
            moving: Claims that have let go what they had, and are about to take something else.

        Raises:
            DeviceHeld: Somebody else holds one; then it holds nothing.
            StorageError: The disk is full, read-only, or fails; nothing is changed.
        """
        others = [
            hold
            for other in self._ledger.by_uid.values()
            if other.uid not in moving
            for hold in other.holds
        ]
        entry = wanted.entry
        try:
            for hold in entry.holds:
                refuse_if_held(hold, others, self._ledger, self._cdi)
        except DeviceHeld:
            if entry.uid in moving:
                self._ledger.remove(entry.uid)
            raise
        needed = self._steps.needed(entry)
        if not needed:
            return self._ledger.put(entry)
        return self._ledger.put(replace(entry, state=EntryState.INTENDED, steps=(needed[0].name,)))

    def _write_cdi(self, entry: Entry) -> None:
        if entry.edits is None:
            raise ClaimUnavailable(
                f"the record of claim {entry} does not say what its containers get, and nothing "
                "of it is known yet: it must wait"
            )
        self._cdi.write(entry.uid, entry.edits)


def _is_intended(outcome: Outcome) -> bool:
    return isinstance(outcome, Entry) and outcome.state is EntryState.INTENDED


def _held_objects(entry: Entry) -> list[object]:
    """What each of its holds is of: the host device nodes of its chips, or a partition of one."""
    return [(hold.nodes, hold.partition.key if hold.partition else None) for hold in entry.holds]


def _ready(entry: Entry) -> Entry:
    return replace(entry, state=EntryState.READY, doubted=False)
