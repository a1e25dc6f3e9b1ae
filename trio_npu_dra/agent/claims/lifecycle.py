"""Takes, finishes and undoes holds of claims, as the table of `transitions` says.

The critical section of the node decides which claim gets what, for all claims of a call in their
order. A claim without steps is finished there: no checkpoint lies between its record and its CDI
file, so a cancelled call leaves both or none. Steps run outside, under a lock of their claim, one
task of the node at a time; they enter the critical section only to change the record.

A death, a full disk or a cancelled call can leave of a claim:

- nothing;
- an *intended* or *undoing* record, perhaps some steps, perhaps a CDI file: the next call about the
  claim continues from there, and so does the repair;
- a *ready* record whose CDI file could not be written: the claim holds its NPUs, and the repair
  writes the file. The record stays, because a pod may run if only the reply was lost;
- a *ready* record and its CDI file.

Only a crash of the node can leave a CDI file without a record; the repair removes it.

Disk work runs on the event loop, not in a thread. It is one short fsync a claim, and it keeps
checkpoints, and so cancellation, out of the critical section. The folder is on the kubelet's own
disk: when that stalls, the kubelet's checkpoints stall too, and no call waits for us alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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
class ClaimPlan:
    """What a claim is to hold.

    Attributes:
        entry: Its devices and their edits; *ready*, without steps.
        is_fresh: Whether it comes from a look at the node; else it is the ledger's own entry.
    """

    entry: Entry
    is_fresh: bool = True


Outcome = Entry | DriverError | None
"""The claim's entry, None once it is removed, or an error."""


class ClaimLifecycle:
    """The holds of this node's claims, in the ledger and as CDI files.

    Args:
        ledger: Who holds what.
        cdi: The CDI files.
        steps: The steps that claims may need, in order.
    """

    def __init__(self, ledger: Ledger, cdi: CdiFolder, steps: Sequence[Step] = ()) -> None:
        self._ledger = ledger
        self._cdi = cdi
        self._steps = Steps(steps)
        self._locks = StepLocks(ledger.state_folder, is_kept=self._has_steps)

    async def prepare(self, plans: Mapping[str, ClaimPlan]) -> dict[str, Outcome]:
        """Try once to prepare claims, by UID; of two for one device the first gets it."""
        # vNPUs that ended claims left on the chips keep these claims waiting.
        nodes = {node for one in plans.values() for hold in one.entry.holds for node in hold.nodes}
        left = [
            entry.uid
            for entry in self._ledger.by_uid.values()
            if entry.holder.kind is HolderKind.LEFTOVER
            if any(nodes & hold.nodes for hold in entry.holds)
        ]
        await self.repair(left)
        return await self._try(Goal.PREPARE, plans)

    async def unprepare(self, uids: Sequence[str]) -> dict[str, Outcome]:
        """Try once to undo claims; one that was never prepared is undone."""
        return await self._try(Goal.UNPREPARE, dict.fromkeys(uids))

    def sweep_locks(self) -> None:
        """Remove the locks of claims that are gone; raises StorageError if that fails."""
        self._locks.sweep()

    async def repair(self, uids: Sequence[str]) -> dict[str, Outcome]:
        """Try once to finish or undo claims that a call left half done."""
        return await self._try(Goal.REPAIR, dict.fromkeys(uids))

    async def _try(self, goal: Goal, claims: Mapping[str, ClaimPlan | None]) -> dict[str, Outcome]:
        if not claims:
            return {}
        try:
            async with self._ledger.exclusive():
                actions = {uid: self._action(goal, uid, one) for uid, one in claims.items()}
                later = {uid for uid, action in actions.items() if self._takes_steps(uid, action)}
                outcomes = self._at_once(actions, claims, later)
        except StorageError as error:
            return dict.fromkeys(claims, error)
        later |= {
            uid
            for uid, one in outcomes.items()
            if isinstance(one, Entry) and one.state is EntryState.INTENDED
        }
        due = {uid: one for uid, one in claims.items() if uid in later}
        return outcomes | await side_by_side(partial(self._stepwise, goal), due)

    def _takes_steps(self, uid: str, action: Action) -> bool:
        """Whether an action does or undoes steps that were begun."""
        return action in _ABOUT_STEPS and self._has_steps(uid)

    def is_whole(self, entry: Entry) -> bool:
        """Whether a claim is ready and its steps' work still stands."""
        return entry.state is EntryState.READY and self._steps.lost(entry) is None

    def _action(self, goal: Goal, uid: str, plan: ClaimPlan | None) -> Action:
        entry = self._ledger.by_uid.get(uid)
        found = situation(
            entry,
            plan.entry.allocation if plan else None,
            is_unreadable=uid in self._ledger.unreadable,
            is_whole=entry is not None and self.is_whole(entry),
        )
        action = TRANSITIONS[found][goal]
        is_stale = plan is not None and not plan.is_fresh
        return Action.REFUSE if is_stale and action in _CHANGES_DEVICES else action

    # --- without steps; all inside the critical section -------------------------------------------

    def _at_once(
        self,
        actions: Mapping[str, Action],
        claims: Mapping[str, ClaimPlan | None],
        later: AbstractSet[str],
    ) -> dict[str, Outcome]:
        """Act on all claims but those for *later*; one that needs steps becomes *intended*."""
        outcomes: dict[str, Outcome] = {}
        moving = {
            uid
            for uid, plan in claims.items()
            if actions[uid] is Action.REPLACE and uid not in later and plan
            if _held_objects(self._ledger.by_uid[uid]) != _held_objects(plan.entry)
        }
        # All let go before any takes: a device may move between claims of one call. A claim that
        # keeps its chips lets nothing go: perhaps only the form of its record has changed.
        for uid in moving:
            entry = self._ledger.by_uid[uid]
            try:
                if entry.state is not EntryState.UNDOING:
                    self._ledger.put(replace(entry, state=EntryState.UNDOING))
                self._cdi.remove(uid)
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
        self, action: Action, uid: str, plan: ClaimPlan | None, moving: AbstractSet[str]
    ) -> Entry | None:
        """Do an action that needs no steps.

        Raises:
            HoldGone: The claim must be planned again.
            DriverError: It failed.
        """
        if action is Action.REFUSE:
            raise HoldGone(f"claim {plan and plan.entry} has just been unprepared by another call")
        if action in _CHANGES_DEVICES:
            assert plan is not None, "only a prepare takes"
            entry = self._take(plan, moving)
            if entry.state is EntryState.READY:
                self._write_cdi(entry)
            return entry
        if action is Action.FINISH:
            entry = self._ledger.by_uid[uid]
            self._write_cdi(entry)
            return self._ledger.put(_ready(entry))
        if action is Action.SHOW:
            return self._show(self._ledger.by_uid[uid], plan)
        if action is Action.UNDO:
            self._cdi.remove(uid)
            self._ledger.remove(uid)
        return None

    def _show(self, entry: Entry, plan: ClaimPlan | None) -> Entry:
        """Bring record and CDI file up to the newest facts of the held chips."""
        if plan is not None and plan.entry.edits is not None:
            found = plan.entry
            is_new = found.edits != entry.edits or not entry.knows_its_chips
            # Other chips may have the names now, and a pod may use the held ones. The facts of
            # vNPUs come from a step, not from a plan.
            is_held = _held_objects(found) == _held_objects(entry) and not entry.outlasts_boot
            if is_new and is_held and (plan.is_fresh or entry.edits is None):
                entry = self._ledger.put(with_devices(entry, found.devices, plan.entry.edits))
        if plan is not None and entry.doubted:
            entry = self._ledger.put(replace(entry, doubted=False))
        self._write_cdi(entry)
        return entry

    # --- one claim with steps ---------------------------------------------------------------------

    async def _stepwise(self, goal: Goal, uid: str, plan: ClaimPlan | None) -> Outcome:
        """Follow the table for one claim to the end; the record says where an error stopped it."""
        patience = 0.0 if goal is Goal.REPAIR else PATIENCE_SECONDS
        try:
            async with self._locks.hold(uid, patience_seconds=patience):
                return await self._go_on(goal, uid, plan)
        except DriverError as error:
            return error

    async def _go_on(self, goal: Goal, uid: str, plan: ClaimPlan | None) -> Entry | None:
        async with self._ledger.exclusive():
            action = self._action(goal, uid, plan)
            is_about_steps = self._takes_steps(uid, action)
            if is_about_steps:
                entry = self._ledger.by_uid[uid]
                self._steps.by_name(entry.steps)  # before anything is changed
                if action is Action.FINISH:
                    entry = self._without_lost_steps(entry)
                elif entry.state is not EntryState.UNDOING:
                    entry = self._ledger.put(replace(entry, state=EntryState.UNDOING))
            else:
                acted = self._act(action, uid, plan, frozenset())
                if acted is None or acted.state is EntryState.READY:
                    return acted
                entry = acted
        if is_about_steps and action is not Action.FINISH:
            await self._undo_steps(entry)
            async with self._ledger.exclusive():
                if plan is None:
                    self._ledger.remove(uid)
                    return None
                entry = self._take(plan, {uid})
        return await self._do_steps(entry)

    def _without_lost_steps(self, entry: Entry) -> Entry:
        """Make a ready claim *intended* again, from the first step on whose work is lost."""
        lost = self._steps.lost(entry) if entry.state is EntryState.READY else None
        if lost is None:
            return entry
        self._cdi.remove(entry.uid)
        left = entry.steps[: entry.steps.index(lost.name) + 1]
        log.warning(
            "the work of a claim's step is lost and is done again",
            extra={"claim": str(entry), "uid": entry.uid, "step": lost.name},
        )
        return self._ledger.put(replace(entry, state=EntryState.INTENDED, steps=left))

    async def _do_steps(self, entry: Entry) -> Entry:
        """Do the remaining steps, write the CDI file, note that the claim is ready."""
        done = entry.steps[:-1]  # the last may be half done
        for step in self._steps.needed(entry):
            if step.name in done:
                continue
            if step.name not in entry.steps:
                entry = await self._put(replace(entry, steps=(*entry.steps, step.name)))
            await step.do(entry)
            entry = self._ledger.entry(entry.uid)  # the step may have recorded a result
        self._write_cdi(entry)
        return entry if entry.state is EntryState.READY else await self._put(_ready(entry))

    async def _undo_steps(self, entry: Entry) -> None:
        self._cdi.remove(entry.uid)  # first: no container may start while steps are undone
        for step in reversed(self._steps.by_name(entry.steps)):
            await step.undo(entry)
            entry = self._ledger.entry(entry.uid)
            if len(entry.steps) > 1:  # after the last one the caller removes or replaces the record
                entry = await self._put(replace(entry, steps=entry.steps[:-1]))

    def _has_steps(self, uid: str) -> bool:
        entry = self._ledger.by_uid.get(uid)
        return entry is not None and bool(entry.steps)

    async def _put(self, entry: Entry) -> Entry:
        async with self._ledger.exclusive():
            return self._ledger.put(entry)

    # --- inside the critical section --------------------------------------------------------------

    def _take(self, plan: ClaimPlan, moving: AbstractSet[str]) -> Entry:
        """Record that a claim holds its devices.

        Args:
            plan: What it is to hold.
            moving: Claims that have let go of their devices and are about to take others.

        Raises:
            DeviceHeld: Another holder has one; then the claim holds nothing.
            StorageError: The disk is full, read-only, or fails; nothing has changed.
        """
        others = [
            hold
            for other in self._ledger.by_uid.values()
            if other.uid not in moving
            for hold in other.holds
        ]
        entry = plan.entry
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
                f"the record of claim {entry} does not say what its containers get, and its NPUs "
                "are not known yet: it must wait"
            )
        self._cdi.write(entry.uid, entry.edits)


def _held_objects(entry: Entry) -> list[object]:
    """The object of each hold: the host device nodes of its chips, or a partition of one."""
    return [(hold.nodes, hold.partition.key if hold.partition else None) for hold in entry.holds]


def _ready(entry: Entry) -> Entry:
    return replace(entry, state=EntryState.READY, doubted=False)
