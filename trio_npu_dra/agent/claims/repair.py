"""Mends lost CDI files and half-done claims while no call is about them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import trio

from trio_npu_dra.agent.claims.lifecycle import ClaimLifecycle, Outcome
from trio_npu_dra.agent.claims.metadata import DeviceMetadata
from trio_npu_dra.agent.claims.steps import Step
from trio_npu_dra.agent.handout.cdi import CdiFolder, DriverFiles
from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import (
    DevicesUnknown,
    DriverError,
    HostFileMissing,
    LockHeld,
)
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

_INTERVAL = 5.0  # seconds between two looks
_FINISH_SECONDS = 20.0  # to finish half-done claims; the next look continues
_TIDY_SECONDS = 20.0  # for the steps' own tidying
_CALL_SECONDS = 45.0  # a call may last so long, and reports its error itself
_STUCK_SECONDS = 60.0  # each holder of the lock gives up earlier


async def keep_cdi_files(
    ledger: Ledger,
    cdi: CdiFolder,
    steps: Sequence[Step] = (),
    board: Observable[Board] | None = None,
    metadata: DeviceMetadata | None = None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep the files of claims as the ledger says; finish or undo half-done claims.

    The kubelet does not prepare a running pod's claims again, and without its file a container
    cannot restart.

    Args:
        ledger: Who holds what.
        cdi: The files.
        steps: The steps that claims may need, in order.
        board: The chips of the steps; a look follows as soon as they are known.
        metadata: Says what containers can read of devices; None leaves that as it is.
        task_status: Started once every file is right, or a log line says why not.
    """
    repair = Repair(ledger, cdi, steps, board, metadata)
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
    """One instance's looks at all claims; the arguments are those of `keep_cdi_files`."""

    def __init__(
        self,
        ledger: Ledger,
        cdi: CdiFolder,
        steps: Sequence[Step] = (),
        board: Observable[Board] | None = None,
        metadata: DeviceMetadata | None = None,
    ) -> None:
        self._ledger = ledger
        self._cdi = cdi
        self._board = board
        self._metadata = metadata
        self._steps = tuple(steps)
        self._lifecycle = ClaimLifecycle(ledger, cdi, steps)
        self._problems: Mapping[str, str] = {}
        self._unfit: frozenset[str] = frozenset()
        self._failing: Mapping[str, float] = {}  # claims with errors, and since when

    async def reconcile(self, *, is_first: bool) -> None:
        """Compare and mend once; log each new problem once."""
        problems: dict[str, str] = {}
        with watchdog.step("repairing CDI files", limit=_STUCK_SECONDS):
            with _noted(problems, "all"):
                await self._ledger.within(partial(self._compare, problems, is_first=is_first))
            problems |= await self._finish()
            with trio.move_on_after(_TIDY_SECONDS):
                for step in self._steps:
                    with _noted(problems, step.name), suppress(LockHeld):  # another task does it
                        await step.tidy()
        for key, problem in problems.items():
            if self._problems.get(key) != problem:
                log.error("claim files cannot be repaired", extra={"problem": problem})
        self._problems = problems

    def _compare(self, problems: dict[str, str], *, is_first: bool) -> None:
        """Make the files right; inside the critical section.

        Raises:
            StorageError: The folder of the CDI files cannot be read.
        """
        if is_first:
            self._cdi.remove_unfinished()
        with _noted(problems, "records"):
            self._ledger.write_missing()
        if (hook := self._cdi.libraries.hook) is not None:
            with _noted(problems, "hook"):
                hook.install()
        files, entries = self._cdi.scan(), dict(self._ledger.by_uid)
        metadata = self._cdi.metadata.scan()
        # A claim whose record cannot be read may have a running pod: its files stay.
        for uid in (files | metadata).keys() - entries.keys() - self._ledger.unreadable:
            with _noted(problems, uid):
                self._cdi.remove(uid)
                log.warning("CDI file without a claim removed", extra={"uid": uid})
        host = DriverFiles(self._cdi.host)
        unfit = frozenset(self._cdi.host.unfit)
        for path in sorted(unfit - self._unfit):
            log.warning("a path of the wrong kind is given to no container", extra={"path": path})
        self._unfit = unfit
        for uid, entry in entries.items():
            if not self._lifecycle.is_whole(entry) or entry.holder.kind is HolderKind.POD:
                continue  # pods of a device plugin have one file together
            with _noted(problems, uid, about=f"{entry}: "):
                self._renew_metadata(entry)
                self._rewrite(self._ledger.by_uid[uid], host)
        with _noted(problems, "hooks"):
            self._cdi.remove_unused_hooks(one.edits for one in self._ledger.by_uid.values())

    def _renew_metadata(self, entry: Entry) -> None:
        """Note addresses that have changed while a claim has the chip."""
        if self._metadata is None or self._board is None or not entry.metadata:
            return
        metadata = self._metadata.renewed(entry, self._board.value)
        if metadata != entry.metadata:
            self._ledger.put(replace(entry, metadata=metadata))

    def _rewrite(self, entry: Entry, host: DriverFiles) -> None:
        """Write a claim's files, with what the host has now, such as a new Ascend driver."""
        before = entry
        try:
            if (now := self._cdi.as_now(entry, host)) is not entry:
                entry = self._ledger.put(now)
        finally:  # while the host lacks what it needs, no container starts by the file that it had
            if self._cdi.write_all(entry):
                said = {"claim": str(entry), "uid": entry.uid}
                if entry.edits == before.edits:
                    log.warning("CDI file was missing or wrong and is rewritten", extra=said)
                else:
                    log.info("CDI file follows what the host has now", extra=said)

    async def _finish(self) -> dict[str, str]:
        """Finish or undo what calls left half done, unless a call is at it; the problems by UID."""
        half_done = [
            uid
            for uid, entry in self._ledger.by_uid.items()
            if not self._lifecycle.is_whole(entry)
            and entry.holder.kind is not HolderKind.POD  # `device_plugin.pods` does that
        ]
        outcomes: dict[str, Outcome] = {}
        if half_done:
            with trio.move_on_after(_FINISH_SECONDS):
                outcomes = await self._lifecycle.repair(half_done)
        errors = {uid: one for uid, one in outcomes.items() if isinstance(one, DriverError)}
        now = trio.current_time()
        self._failing = {uid: self._failing.get(uid, now) for uid in errors}
        return {
            uid: f"{self._ledger.by_uid.get(uid, uid)}: {error}"
            for uid, error in errors.items()
            if not isinstance(error, LockHeld | DevicesUnknown)
            if not error.retryable or now - self._failing[uid] >= _CALL_SECONDS
        }


@contextmanager
def _noted(problems: dict[str, str], key: str, *, about: str = "") -> Iterator[None]:
    """Note an error under *key* and go on."""
    try:
        yield
    except HostFileMissing as error:  # as for all claims
        problems[str(error)] = str(error)
    except DriverError as error:
        problems[key] = f"{about}{error}"
