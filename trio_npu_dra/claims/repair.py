"""Puts right what happened to claims while nobody called: lost files, lost unprepare calls."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection

import trio

from trio_npu_dra import pulse
from trio_npu_dra.claims.cdi import CdiFolder
from trio_npu_dra.claims.prepare import ClaimReader, NodeClaims
from trio_npu_dra.claims.record import ClaimRecord
from trio_npu_dra.claims.records import Records
from trio_npu_dra.crashpoints import Point, reached
from trio_npu_dra.errors import KubeError, NotFound, NpuDraError, StorageError
from trio_npu_dra.kube.objects import ResourceClaim
from trio_npu_dra.kubelet.driver import ClaimRef

log = logging.getLogger(__name__)

_CDI_INTERVAL = 5.0  # seconds between two looks at which CDI files exist
_REPAIR_STUCK_SECONDS = 60.0  # whoever holds the lock gives up earlier
_ASK_STUCK_SECONDS = 60.0  # one request
_FORGET_STUCK_SECONDS = 300.0  # a call for each of its chips, and the patience of an unprepare
_API_INTERVAL = 60.0  # seconds between two looks at which claims exist
_GRACE = 600.0  # seconds that a claim must have been gone: the kubelet has retries of its own


async def keep_cdi_files(
    records: Records,
    cdi: CdiFolder,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Hold the CDI files to the records, without end.

    The kubelet does not prepare a running pod's claims again, and a container that restarts
    without the file cannot start.

    Started: Every file was compared with its record and is right, or a log line says why not.

    Args:
        records: Who holds what.
        cdi: The files.
        task_status: Told once started.
    """
    repair = _CdiRepair(records, cdi)
    await repair.look(is_first=True)
    reached(Point.START_FILES_REPAIRED)
    task_status.started()
    while True:
        await trio.sleep(_CDI_INTERVAL)
        await repair.look(is_first=False)


class _CdiRepair:
    def __init__(self, records: Records, cdi: CdiFolder) -> None:
        self._records = records
        self._cdi = cdi
        self._complaints: dict[str, str] = {}

    async def look(self, *, is_first: bool) -> None:
        """Compare once. The contents of CDI files are read at the first look only.

        Of two versions each would else put right what the other one writes, in turns.
        """
        with pulse.step("repairing CDI files", limit=_REPAIR_STUCK_SECONDS):
            self._complain(await self._compare(is_first=is_first))

    async def _compare(self, *, is_first: bool) -> dict[str, str]:
        """Make the files right; what went wrong, by claim."""
        problems: dict[str, str] = {}
        try:
            async with self._records.exclusive():
                if is_first:
                    reached(Point.START_RECORDS_READ)
                    self._cdi.remove_unfinished()
                self._rewrite_records(problems)
                files = self._cdi.scan()
                # A claim whose record cannot be read may have a running pod: its file stays.
                for uid in files.keys() - self._records.by_uid.keys() - self._records.unreadable:
                    self._remove(uid, problems)
                for uid, record in self._records.by_uid.items():
                    if is_first or not files.get(uid):
                        self._rewrite(record, problems)
        except StorageError as error:
            problems["all"] = str(error)
        return problems

    def _rewrite_records(self, problems: dict[str, str]) -> None:
        try:
            self._records.write_missing()
        except StorageError as error:
            problems["records"] = str(error)

    def _remove(self, uid: str, problems: dict[str, str]) -> None:
        try:
            self._cdi.remove(uid)
        except StorageError as error:
            problems[uid] = str(error)
        else:
            log.warning("CDI file without a claim removed", extra={"uid": uid})

    def _rewrite(self, record: ClaimRecord, problems: dict[str, str]) -> None:
        try:
            if self._cdi.write(record):
                log.warning(
                    "CDI file was missing or wrong and is rewritten",
                    extra={"claim": str(record), "uid": record.uid},
                )
        except NpuDraError as error:
            problems[record.uid] = f"{record}: {error}"

    def _complain(self, problems: dict[str, str]) -> None:
        """Say what is wrong once, not every five seconds."""
        for uid, problem in problems.items():
            if self._complaints.get(uid) != problem:
                log.error("claim files cannot be repaired", extra={"problem": problem})
        self._complaints = problems


async def forget_gone_claims(
    records: Records,
    claims: NodeClaims,
    reader: ClaimReader,
    is_busy: Callable[[Collection[str]], Awaitable[bool]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Unprepare claims that do not exist any more and that the kubelet forgot, without end.

    Args:
        records: Who holds what.
        claims: Unprepares them.
        reader: Tells whether a claim exists, one small GET a prepared claim and minute.
        is_busy: Whether a process uses one of the chips with these host device nodes.
        task_status: Told once started.
    """
    gone_since: dict[str, float] = {}
    task_status.started()
    while True:
        await trio.sleep(_API_INTERVAL)
        for uid, record in list(records.by_uid.items()):
            with pulse.step(f"looking whether claim {record} exists", limit=_ASK_STUCK_SECONDS):
                is_gone = await _is_gone(record, reader)
            if is_gone is False:
                gone_since.pop(uid, None)
            if not is_gone:
                continue
            since = gone_since.setdefault(uid, trio.current_time())
            if trio.current_time() - since < _GRACE:
                continue
            with pulse.step(f"forgetting claim {record}", limit=_FORGET_STUCK_SECONDS):
                if await is_busy(record.host_nodes):
                    continue
                log.warning(
                    "claim does not exist any more and is unprepared", extra={"claim": str(record)}
                )
                await claims.unprepare([_ref(record)])
        gone_since = {uid: at for uid, at in gone_since.items() if uid in records.by_uid}


async def _is_gone(record: ClaimRecord, reader: ClaimReader) -> bool | None:
    """Whether the claim is gone or replaced; `None` when the API server does not say."""
    try:
        claim = await reader.get(ResourceClaim, record.claim.name, record.claim.namespace)
    except NotFound:
        return True
    except KubeError:
        return None
    if not claim.metadata.uid:
        return None  # each object has one: this is an answer of something else
    return claim.metadata.uid != record.uid


def _ref(record: ClaimRecord) -> ClaimRef:
    return ClaimRef(namespace=record.claim.namespace, uid=record.uid, name=record.claim.name)
