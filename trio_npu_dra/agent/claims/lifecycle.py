"""Takes, finishes and undoes holds of claims, as the table of `transitions` says.

All claims go one path (`ClaimLifecycle._path`). The critical section of the node decides which
claim gets what, for all claims of a call in their order, and a claim without steps comes to its end
there: no checkpoint lies between its record and its CDI file, so a cancelled call leaves both or
none. A claim with steps starts anew under a lock of its own, one task at a time: its
steps run outside of the critical section, and what lies between them inside.

A death, a full disk or a cancelled call can leave of a claim:

- nothing;
- an *intended* or *undoing* record, perhaps some steps, perhaps a CDI file: the next call about the
  claim continues from there, and so does the repair;
- a *ready* record whose CDI file could not be written: the claim holds its NPUs, and the repair
  writes the file. The record stays, because a pod may run if only the reply was lost;
- a *ready* record and its CDI file.

Only a crash of the node can leave a CDI file without a record; the repair removes it.

The section runs in a thread (`disk`): a disk that stalls keeps the calls about claims waiting, as
it does with the kubelet's own checkpoints, and nothing else of the daemon. A section has no
checkpoint, and so no cancellation.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from trio_npu_dra.agent.claims.side_by_side import side_by_side
from trio_npu_dra.agent.claims.steps import Step, Steps
from trio_npu_dra.agent.claims.transitions import TRANSITIONS, Action, Goal, situation
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.handout.exclusion import refuse_if_held
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.agent.holds.ledger import PATIENCE_SECONDS, Ledger
from trio_npu_dra.kit.base.device_metadata import renewed
from trio_npu_dra.kit.base.errors import DeviceHeld, DriverError, StorageError

log = logging.getLogger(__name__)

_CHANGES_DEVICES: Final = {Action.TAKE, Action.REPLACE}
_ABOUT_STEPS: Final = {Action.FINISH, Action.REPLACE, Action.UNDO}


@dataclass(frozen=True, slots=True)
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

Plan = Callable[[Iterable[str]], Mapping[str, ClaimPlan | DriverError]]
"""What claims are to hold, by UID; made inside the critical section, so that nothing changes."""

Taken = Callable[[], Awaitable[None]]
"""A step that is done or undone."""

Path = Generator[Taken | None, None, Entry | None]
"""What becomes of a claim, inside the critical section, to its outcome.

It yields each step, which is taken outside; and first None, where it must not go on without the
claim's lock.
"""


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

    async def prepare(self, uids: Sequence[str], plan: Plan) -> dict[str, Outcome]:
        """Try once to prepare claims; of two for one device the first gets it."""
        leftovers = [
            entry
            for entry in self._ledger.by_uid.values()
            if entry.holder.kind is HolderKind.LEFTOVER
        ]
        if leftovers:
            # vNPUs that ended claims left on the chips keep these claims waiting.
            try:
                plans = await self._ledger.within(partial(plan, uids))
            except StorageError as error:
                return dict.fromkeys(uids, error)
            planned = [one.entry for one in plans.values() if isinstance(one, ClaimPlan)]
            nodes = {node for entry in planned for hold in entry.holds for node in hold.nodes}
            await self.repair(
                [one.uid for one in leftovers if any(nodes & hold.nodes for hold in one.holds)]
            )
        return await self._follow(Goal.PREPARE, uids, plan)

    async def unprepare(self, uids: Sequence[str]) -> dict[str, Outcome]:
        """Try once to undo claims; one that was never prepared is undone."""
        return await self._follow(Goal.UNPREPARE, uids)

    async def repair(self, uids: Sequence[str]) -> dict[str, Outcome]:
        """Try once to finish or undo claims that a call left half done."""
        return await self._follow(Goal.REPAIR, uids)

    def is_whole(self, entry: Entry) -> bool:
        """Whether a claim is ready and its steps' work still stands."""
        return entry.state is EntryState.READY and self._steps.lost(entry) is None

    async def _follow(
        self, goal: Goal, uids: Sequence[str], plan: Plan | None = None
    ) -> dict[str, Outcome]:
        """Bring claims to their goal: those without steps at once, then the others side by side."""
        if not uids:
            return {}
        with_steps: list[str] = []

        def follow() -> dict[str, Outcome]:
            claims = _planned(uids, plan)
            moving, outcomes = self._let_go(goal, claims)
            for uid, claim in claims.items():
                if uid in outcomes:
                    continue
                try:
                    next(self._path(goal, uid, claim, moving))
                except StopIteration as end:
                    outcomes[uid] = end.value
                except DriverError as error:
                    outcomes[uid] = error
                else:
                    with_steps.append(uid)
                moving.discard(uid)  # what it has now is not free for the next
            return outcomes

        try:
            outcomes = await self._ledger.within(follow)
        except StorageError as error:
            return dict.fromkeys(uids, error)
        if with_steps:
            take = partial(self._take_steps, goal)
            outcomes |= await side_by_side(take, dict.fromkeys(with_steps, plan))
        return outcomes

    async def _take_steps(self, goal: Goal, uid: str, plan: Plan | None) -> Outcome:
        """Bring one claim to its goal; the record says where an error stopped it."""
        patience = 0.0 if goal is Goal.REPAIR else PATIENCE_SECONDS
        try:
            async with self._ledger.alone(uid, patience_seconds=patience):
                path = self._locked_path(goal, uid, plan)

                def go_on() -> tuple[Taken | None, Entry | None]:
                    """Until the next step, or to the outcome."""
                    try:
                        return next(path), None
                    except StopIteration as end:
                        return None, end.value

                while True:
                    take, entry = await self._ledger.within(go_on)
                    if take is None:
                        return entry
                    await take()
        except DriverError as error:
            return error

    # --- inside the critical section --------------------------------------------------------------

    def _locked_path(self, goal: Goal, uid: str, plan: Plan | None) -> Path:
        claim = _planned([uid], plan)[uid]
        return (yield from self._path(goal, uid, claim, is_locked=True))

    def _path(
        self,
        goal: Goal,
        uid: str,
        plan: ClaimPlan | DriverError | None,
        moving: AbstractSet[str] = frozenset(),
        *,
        is_locked: bool = False,
    ) -> Path:
        """Do what the table says.

        Args:
            goal: What the call is for.
            uid: The claim.
            plan: What it is to hold; a prepare has one.
            moving: Claims that have let go of their devices and are about to take others.
            is_locked: Whether nobody else takes steps of the claim.

        Raises:
            DriverError: It failed.
        """
        if isinstance(plan, DriverError):
            raise plan
        action = self._action(goal, uid, plan)
        entry = self._ledger.by_uid.get(uid)
        if action in _ABOUT_STEPS and self._has_steps(uid) and not is_locked:
            yield None
        if action is Action.NOTHING:
            return None
        if action is Action.SHOW:
            assert entry is not None
            return self._show(entry, plan)
        if action is Action.UNDO or (action is Action.REPLACE and self._has_steps(uid)):
            yield from self._undo(uid, entry)
            if action is Action.UNDO:
                self._ledger.remove(uid)
                return None
            moving = {uid}
        if action in _CHANGES_DEVICES:
            assert plan is not None, "only a prepare takes"
            entry = self._take(plan, moving)
        assert entry is not None
        return (yield from self._finish(entry))

    def _undo(self, uid: str, entry: Entry | None) -> Generator[Taken, None, None]:
        """Remove the CDI file and undo the steps; the caller removes or replaces the record."""
        steps = self._steps.by_name(entry.steps) if entry is not None else []
        if entry is not None and steps and entry.state is not EntryState.UNDOING:
            entry = self._ledger.put(replace(entry, state=EntryState.UNDOING))
        self._cdi.remove(uid)  # first: no container may start while steps are undone
        for step in reversed(steps):
            assert entry is not None
            yield partial(step.undo, entry)
            entry = self._ledger.by_uid[uid]
            if len(entry.steps) > 1:
                entry = self._ledger.put(replace(entry, steps=entry.steps[:-1]))

    def _finish(self, entry: Entry) -> Generator[Taken, None, Entry]:
        """Do the remaining steps, write the CDI file, note that the claim is ready.

        A ready claim is *intended* again, from the first step on whose work is lost.
        """
        self._steps.by_name(entry.steps)  # before anything is changed
        lost = self._steps.lost(entry) if entry.state is EntryState.READY else None
        if lost is not None:
            self._cdi.remove(entry.uid)
            log.warning(
                "the work of a claim's step is lost and is done again",
                extra={"claim": str(entry), "uid": entry.uid, "step": lost.name},
            )
            left = entry.steps[: entry.steps.index(lost.name) + 1]
            entry = self._ledger.put(replace(entry, state=EntryState.INTENDED, steps=left))
        done = entry.steps[:-1]  # the last may be half done
        for step in self._steps.needed(entry):
            if step.name in done:
                continue
            if step.name not in entry.steps:
                entry = self._ledger.put(replace(entry, steps=(*entry.steps, step.name)))
            yield partial(step.do, entry)
            entry = self._ledger.by_uid[entry.uid]  # the step may have recorded a result
        self._cdi.write_all(entry)
        if entry.state is EntryState.READY:
            return entry
        return self._ledger.put(replace(entry, state=EntryState.READY, doubted=False))

    def _action(self, goal: Goal, uid: str, plan: ClaimPlan | None) -> Action:
        entry = self._ledger.by_uid.get(uid)
        found = situation(
            entry,
            plan.entry.allocation if plan else None,
            is_unreadable=uid in self._ledger.unreadable,
            is_whole=entry is not None and self.is_whole(entry),
        )
        return TRANSITIONS[found][goal]

    def _let_go(
        self, goal: Goal, claims: Mapping[str, ClaimPlan | DriverError | None]
    ) -> tuple[set[str], dict[str, Outcome]]:
        """Let all claims without steps go of devices before any takes others.

        A device may move between claims of one call. A claim that keeps its chips lets nothing go:
        perhaps only the form of its record has changed.

        Returns:
            The claims that let go, and the errors of those that could not.
        """
        moving, errors = set[str](), dict[str, Outcome]()
        for uid, plan in claims.items():
            entry = self._ledger.by_uid.get(uid)
            if not isinstance(plan, ClaimPlan) or entry is None or entry.steps:
                continue
            if self._action(goal, uid, plan) is not Action.REPLACE:
                continue
            if _held_objects(entry) == _held_objects(plan.entry):
                continue
            try:
                if entry.state is not EntryState.UNDOING:
                    self._ledger.put(replace(entry, state=EntryState.UNDOING))
                self._cdi.remove(uid)
                moving.add(uid)
            except StorageError as error:
                errors[uid] = error
        return moving, errors

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

    def _show(self, entry: Entry, plan: ClaimPlan | None) -> Entry:
        """Bring record and CDI file up to the newest facts of the held chips."""
        if plan is not None:
            found = plan.entry
            # Other chips may have the names now, and a pod may use the held ones. The facts of
            # vNPUs come from a step, not from a look at the node.
            is_held = _held_objects(found) == _held_objects(entry)
            is_usable = is_held and not (plan.is_fresh and entry.outlasts_boot)
            if found.edits != entry.edits and is_usable:
                metadata = renewed(entry.metadata, found.metadata)
                found = replace(entry, devices=found.devices, edits=found.edits, metadata=metadata)
                entry = self._ledger.put(found)
        if plan is not None and entry.doubted:
            entry = self._ledger.put(replace(entry, doubted=False))
        self._cdi.write_all(entry)
        return entry

    def _has_steps(self, uid: str) -> bool:
        entry = self._ledger.by_uid.get(uid)
        return entry is not None and bool(entry.steps)


def _planned(
    uids: Iterable[str], plan: Plan | None
) -> Mapping[str, ClaimPlan | DriverError | None]:
    return dict.fromkeys(uids) if plan is None else plan(uids)


def _held_objects(entry: Entry) -> list[object]:
    """The object of each hold: the host device nodes of its chips, or a partition of one."""
    return [(hold.nodes, hold.partition.key if hold.partition else None) for hold in entry.holds]
