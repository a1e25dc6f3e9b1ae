"""Puts right what happened to claims while nobody called: lost files, calls cut off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import trio

from trio_npu_dra.agent.claims.cdi import CdiFolder
from trio_npu_dra.agent.claims.lifecycle import ClaimLifecycle, Outcome
from trio_npu_dra.agent.claims.steps import Step
from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import DevicesUnknown, DriverError, LockHeld, StorageError
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

_INTERVAL = 5.0  # seconds between two looks
_FINISH_SECONDS = 20.0  # for what calls left half done; the next look goes on with it
_TIDY_SECONDS = 20.0  # the same for what concerns no single claim
_CALL_SECONDS = 45.0  # for so long a call may be at it, which says itself what goes wrong
_STUCK_SECONDS = 60.0  # whoever holds the lock gives up earlier


async def keep_cdi_files(
    ledger: Ledger,
    cdi: CdiFolder,
    steps: Sequence[Step] = (),
    board: Observable[Board] | None = None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Hold the CDI files to the ledger; finish or undo what calls left half done.

    The kubelet does not prepare a running pod's claims again, and a container that restarts
    without the file cannot start.

    Started: Every file was compared with its record and is right, or a log line says why not.

    Args:
        ledger: Who holds what.
        cdi: The files.
        steps: What may have to be done for a claim besides, in order.
        board: The chips that steps are about; they are not known yet at a start, and once they
            are, what waits for them waits no longer.
        task_status: Told once started.
    """
    repair = Repair(ledger, cdi, steps)
    await repair.reconcile(is_first=True)
    task_status.started()
    is_known = board is None
    while True:
        with trio.move_on_after(_INTERVAL):
            if board is None or is_known:
                await trio.sleep_forever()
            await board.wait_until(lambda board: bool(board.chips))
            is_known = True
        await repair.reconcile(is_first=False)


class Repair:
    """One instance's looks at all claims.

    Args:
        ledger: Who holds what.
        cdi: The files.
        steps: What may have to be done for a claim besides, in order.
    """

    def __init__(self, ledger: Ledger, cdi: CdiFolder, steps: Sequence[Step] = ()) -> None:
        self._ledger = ledger
        self._cdi = cdi
        self._steps = tuple(steps)
        self._holding = ClaimLifecycle(ledger, cdi, steps)
        self._complaints: Mapping[str, str] = {}
        self._failing: Mapping[str, float] = {}

    async def reconcile(self, *, is_first: bool) -> None:
        """Compare once. The contents of CDI files are read at the first look only.

        Of two versions each would else put right what the other one writes, in turns.
        """
        with watchdog.step("repairing CDI files", limit=_STUCK_SECONDS):
            problems = await self._compare(is_first=is_first)
            problems |= await self._finish()
            problems |= await self._tidy()
        self._log_new(problems)

    async def _compare(self, *, is_first: bool) -> dict[str, str]:
        """Make the files right; what went wrong, by claim."""
        problems: dict[str, str] = {}
        try:
            async with self._ledger.exclusive():
                problems |= self._prepare_files(is_first=is_first)
                files = self._cdi.scan()
                # A claim whose record cannot be read may have a running pod: its file stays.
                for uid in files.keys() - self._ledger.by_uid.keys() - self._ledger.unreadable:
                    if problem := self._remove(uid):
                        problems[uid] = problem
                for uid, entry in list(self._ledger.by_uid.items()):
                    if not self._holding.is_whole(entry) or entry.holder.kind is HolderKind.POD:
                        continue  # what pods of a device plugin get is in a file of its own
                    is_right = not is_first and files.get(uid, False) and entry.edits is not None
                    if not is_right and (problem := self._rewrite(entry, is_first=is_first)):
                        problems[uid] = problem
                if problem := _problem_of(self._remove_unused_hooks):
                    problems["hooks"] = problem
        except StorageError as error:
            problems["all"] = str(error)
        return problems

    def _prepare_files(self, *, is_first: bool) -> dict[str, str]:
        """Put right what no single claim has; what went wrong."""
        acts: dict[str, Callable[[], object]] = {
            "records": self._ledger.write_missing,
            "hook": self._cdi.install_hook,
        }
        if is_first:
            self._cdi.remove_unfinished()
            acts["locks"] = self._holding.sweep_locks
        problems = {name: _problem_of(act) for name, act in acts.items()}
        return {name: problem for name, problem in problems.items() if problem}

    def _remove_unused_hooks(self) -> None:
        self._cdi.remove_unused_hooks(entry.edits for entry in self._ledger.by_uid.values())

    def _remove(self, uid: str) -> str:
        problem = _problem_of(partial(self._cdi.remove, uid))
        if not problem:
            log.warning("CDI file without a claim removed", extra={"uid": uid})
        return problem

    def _rewrite(self, entry: Entry, *, is_first: bool) -> str:
        """Write a claim's CDI file; what went wrong.

        A start makes it by what the host has now, such as a new Ascend driver. Else the record says
        what is in it, as it does of devices that only a newer version knows.
        """
        try:
            if is_first or entry.edits is None:
                entry = self._rendered_anew(entry)
            if entry.edits is not None and self._cdi.write(entry.uid, entry.edits):
                log.warning(
                    "CDI file was missing or wrong and is rewritten",
                    extra={"claim": str(entry), "uid": entry.uid},
                )
        except DriverError as error:
            return f"{entry}: {error}"
        return ""

    def _rendered_anew(self, entry: Entry) -> Entry:
        if not all(device.can_be_rendered for device in entry.devices):
            return entry
        edits = self._cdi.render(entry.uid, entry.devices, allocation=entry.allocation)
        return entry if edits == entry.edits else self._ledger.put(replace(entry, edits=edits))

    async def _finish(self) -> dict[str, str]:
        """Finish or undo what calls left half done, unless somebody is at it; what went wrong."""
        half_done = [
            uid
            for uid, entry in self._ledger.by_uid.items()
            if not self._holding.is_whole(entry)
            and entry.holder.kind is not HolderKind.POD  # `device_plugin.pods` does that
        ]
        outcomes: dict[str, Outcome] = {}
        if half_done:
            with trio.move_on_after(_FINISH_SECONDS):
                outcomes = await self._holding.repair(half_done)
        errors = {uid: one for uid, one in outcomes.items() if isinstance(one, DriverError)}
        now = trio.current_time()
        self._failing = {uid: self._failing.get(uid, now) for uid in errors}
        return {
            uid: f"{self._ledger.by_uid.get(uid, uid)}: {error}"
            for uid, error in errors.items()
            if not isinstance(error, LockHeld | DevicesUnknown)
            if not error.retryable or now - self._failing[uid] >= _CALL_SECONDS
        }

    async def _tidy(self) -> dict[str, str]:
        """Have each step put right what concerns no single claim; what went wrong, by step."""
        problems: dict[str, str] = {}
        with trio.move_on_after(_TIDY_SECONDS):
            for step in self._steps:
                try:
                    await step.tidy()
                except LockHeld:
                    pass  # somebody is at it
                except DriverError as error:
                    problems[step.name] = str(error)
        return problems

    def _log_new(self, problems: Mapping[str, str]) -> None:
        """Say what is wrong once, not every five seconds."""
        for uid, problem in problems.items():
            if self._complaints.get(uid) != problem:
                log.error("claim files cannot be repaired", extra={"problem": problem})
        self._complaints = problems


def _problem_of(act: Callable[[], object]) -> str:
    """What goes wrong on the disk; empty when nothing does."""
    try:
        act()
    except StorageError as error:
        return str(error)
    return ""
