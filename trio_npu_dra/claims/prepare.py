"""Prepare and unprepare: the way of a claim from the kubelet's call to a CDI file and back.

What a claim's files can be between two steps, for a crash, a full disk or a cancelled call:

- nothing;
- a record without its CDI file: the claim holds its NPUs. The kubelet calls again, which completes
  it, or unprepares; `repair` writes the file meanwhile. The record is not taken back when the CDI
  file cannot be written: had the answer been lost instead, a pod might run already;
- both.

A CDI file without a record cannot come about here but by a crash of the node; `repair` removes it.

Disk work runs on the event loop, not in a thread. It is one short fsync a claim; it keeps
checkpoints, and so cancellation, out of the critical section; and the folder is on the kubelet's
own disk: when that stalls, the kubelet's checkpoints stall with ours and nobody waits for us.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import trio

from trio_npu_dra.claims.cdi import CdiFolder
from trio_npu_dra.claims.patience import Patience
from trio_npu_dra.claims.plan import ClaimPlan, PlannedDevice, plan_claim
from trio_npu_dra.claims.record import ClaimRecord, RecordedClaim, RecordedDevice
from trio_npu_dra.claims.records import Records
from trio_npu_dra.crashpoints import Point, reached
from trio_npu_dra.errors import (
    ClaimNotAllocated,
    ClaimUnavailable,
    DeviceHeld,
    NotFound,
    NpuDraError,
    StorageError,
)
from trio_npu_dra.kube.objects import ResourceClaim
from trio_npu_dra.kubelet.driver import ClaimRef, PreparedDevice, PrepareResult
from trio_npu_dra.npu.container import chip_nodes
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import Board
from trio_npu_dra.observable import Observable

log = logging.getLogger(__name__)


class ClaimReader(Protocol):
    """Where claims are read; `kube.client.KubeClient` is one."""

    async def get(
        self, kind: type[ResourceClaim], name: str, namespace: str | None = None
    ) -> ResourceClaim:
        """Read one claim.

        Raises:
            NotFound: It does not exist.
            KubeError: Refused or unreachable.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswered:
    """A call of the kubelet that was answered.

    Attributes:
        operation: What it asked for.
        seconds: How long it took.
        claims: How many claims it was about.
        errors: What went wrong, of each claim of which something did.
    """

    operation: Literal["prepare", "unprepare"]
    seconds: float
    claims: int
    errors: tuple[NpuDraError, ...]


class NodeClaims:
    """The claims of this node; fulfils `kubelet.driver.Driver`.

    Args:
        reader: Where claims are read.
        board: The NPUs of this node; an empty Board means that they are not known yet.
        host: Tells the device nodes of an NPU.
        records: Who holds what.
        cdi: Where the container runtime finds what a claim gives.
        driver_name: Results of other drivers are theirs.
        pool_name: The pool of this node.
        patience: How long faults are worth another try.
        told: Called after each call that was answered.
    """

    def __init__(
        self,
        *,
        reader: ClaimReader,
        board: Observable[Board],
        host: Host,
        records: Records,
        cdi: CdiFolder,
        driver_name: str,
        pool_name: str,
        patience: Patience | None = None,
        told: Callable[[CallAnswered], object] = lambda _: None,
    ) -> None:
        self._reader = reader
        self._board = board
        self._host = host
        self._records = records
        self._cdi = cdi
        self._driver_name = driver_name
        self._pool_name = pool_name
        self._patience = patience or Patience()
        self._told = told

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Make the claims' NPUs available to containers: one answer a UID, none spoils another's.

        May be cancelled at any point, and called again for a prepared claim.
        """
        since = trio.current_time()
        refs = {ref.uid: ref for ref in claims}
        wanted: dict[str, ClaimRecord] = {}
        errors: dict[str, NpuDraError] = {}
        async with trio.open_nursery() as nursery:
            for ref in refs.values():
                nursery.start_soon(self._read_patiently, ref, since, wanted, errors)
        reached(Point.PREPARE_CLAIMS_READ)
        errors |= await self._patience.insist(
            partial(self._take, wanted), wanted.keys(), since=since
        )
        for ref in refs.values():
            _log_prepared(ref, wanted.get(ref.uid), errors.get(ref.uid), since)
        self._tell("prepare", len(refs), errors, since)
        reached(Point.PREPARE_ANSWER_DUE)
        return {
            uid: PrepareResult(error=str(errors[uid]))
            if uid in errors
            else PrepareResult(devices=self._devices(wanted[uid]))
            for uid in refs
        }

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Take the claims' NPUs back; an unknown claim is done already. Asks no API server.

        Returns:
            What went wrong by UID, empty when nothing did.
        """
        since = trio.current_time()
        refs = {ref.uid: ref for ref in claims}
        errors = await self._patience.insist(self._release, refs.keys(), since=since)
        for uid, ref in refs.items():
            fields = {"claim": f"{ref.namespace}/{ref.name}", "uid": uid, "ms": _ms(since)}
            if uid in errors:
                log.error("claim not unprepared", extra={**fields, "error": str(errors[uid])})
            else:
                log.info("claim unprepared", extra=fields)
        self._tell("unprepare", len(refs), errors, since)
        reached(Point.UNPREPARE_ANSWER_DUE)
        return {uid: str(errors.get(uid, "")) for uid in refs}

    def _tell(
        self,
        operation: Literal["prepare", "unprepare"],
        claims: int,
        errors: Mapping[str, NpuDraError],
        since: float,
    ) -> None:
        if claims:  # a probe asks for none
            self._told(
                CallAnswered(
                    operation=operation,
                    seconds=trio.current_time() - since,
                    claims=claims,
                    errors=tuple(errors.values()),
                )
            )

    # --- 1. read and plan, claims side by side ---------------------------------------------------

    async def _read_patiently(
        self,
        ref: ClaimRef,
        since: float,
        wanted: dict[str, ClaimRecord],
        errors: dict[str, NpuDraError],
    ) -> None:
        errors |= await self._patience.insist(
            partial(self._read, ref, since + self._patience.transient, wanted),
            {ref.uid},
            since=since,
        )

    async def _read(
        self, ref: ClaimRef, give_up_at: float, wanted: dict[str, ClaimRecord], _: AbstractSet[str]
    ) -> dict[str, NpuDraError]:
        """Work out what *ref* is to hold, and put it into *wanted*."""
        try:
            with trio.fail_at(give_up_at):
                claim = await self._reader.get(ResourceClaim, ref.name, ref.namespace)
            wanted[ref.uid] = self._record(
                plan_claim(
                    claim,
                    ref,
                    driver_name=self._driver_name,
                    pool_name=self._pool_name,
                    board=self._board.value,
                )
            )
        except trio.TooSlowError:
            return {ref.uid: ClaimUnavailable("the API server did not answer in time")}
        except NotFound:
            return {ref.uid: ClaimNotAllocated("the claim does not exist any more")}
        except NpuDraError as error:
            return {ref.uid: error}
        return {}

    def _record(self, plan: ClaimPlan) -> ClaimRecord:
        return ClaimRecord(
            claim=RecordedClaim(namespace=plan.ref.namespace, name=plan.ref.name, uid=plan.ref.uid),
            devices=tuple(self._recorded(device) for device in plan.devices),
        )

    def _recorded(self, device: PlannedDevice) -> RecordedDevice:
        return RecordedDevice(
            requests=device.requests,
            pool=device.pool,
            device=device.npu.name,
            admin_access=device.admin_access,
            family=device.npu.family,
            device_nodes={node.path: node.host_path for node in chip_nodes(self._host, device.npu)},
        )

    # --- 2. the record, one claim at a time ------------------------------------------------------

    async def _take(
        self, wanted: Mapping[str, ClaimRecord], uids: AbstractSet[str]
    ) -> dict[str, NpuDraError]:
        """Record and hand out *uids*; whoever is recorded first has the device."""
        errors: dict[str, NpuDraError] = {}
        try:
            async with self._records.exclusive():
                reached(Point.PREPARE_LOCKED)
                # All let go before any takes: a device may move between claims of one call.
                for step in (self._let_go, self._hold):
                    for uid in uids - errors.keys():
                        try:
                            step(wanted[uid])
                        except NpuDraError as error:
                            errors[uid] = error
        except StorageError as error:
            return dict.fromkeys(uids, error)
        reached(Point.PREPARE_UNLOCKED)
        # No checkpoint between the record and the CDI file: a cancelled call has both or none.
        for uid in uids - errors.keys():
            try:
                self._cdi.write(wanted[uid])
            except NpuDraError as error:
                errors[uid] = error
        return errors

    def _let_go(self, record: ClaimRecord) -> None:
        """Undo what was recorded for another allocation of the claim: no pod uses it any more."""
        old = self._records.by_uid.get(record.uid)
        if old is not None and not old.has_devices_of(record):
            self._cdi.remove(record.uid)
            self._records.remove(record.uid)

    def _hold(self, record: ClaimRecord) -> None:
        """Record that the claim holds its devices, unless it is recorded so already."""
        if record.uid in self._records.by_uid:
            return
        for device in record.devices:
            if not device.admin_access:
                self._check_free(device, record.uid)
        self._records.put(record)

    def _check_free(self, device: RecordedDevice, uid: str) -> None:
        holder = self._records.holder(device)
        if holder is not None:
            raise DeviceHeld(
                f"device {device.device} is held by claim {holder} (UID {holder.uid}) until its "
                "pods have ended"
            )
        for other in self._records.unreadable - {uid}:
            if self._cdi.hands_out(other, device.device):
                raise DeviceHeld(
                    f"device {device.device} may be in use by the claim with UID {other}, whose "
                    "record on the node cannot be read, until its pods have ended"
                )

    def _devices(self, record: ClaimRecord) -> tuple[PreparedDevice, ...]:
        return tuple(
            PreparedDevice(
                requests=device.requests,
                pool=device.pool,
                device=device.device,
                cdi_device_ids=(self._cdi.device_id(record.uid, device.device),),
            )
            for device in record.devices
        )

    # --- unprepare -------------------------------------------------------------------------------

    async def _release(self, uids: AbstractSet[str]) -> dict[str, NpuDraError]:
        """Remove CDI file, then record: a container cannot start with an NPU that is free."""
        errors: dict[str, NpuDraError] = {}
        try:
            async with self._records.exclusive():
                reached(Point.UNPREPARE_LOCKED)
                for uid in uids & (self._records.by_uid.keys() | self._records.unreadable):
                    try:
                        self._cdi.remove(uid)
                        reached(Point.UNPREPARE_CDI_REMOVED)
                        self._records.remove(uid)
                        reached(Point.UNPREPARE_RECORD_REMOVED)
                    except StorageError as error:
                        errors[uid] = error
        except StorageError as error:
            return dict.fromkeys(uids, error)
        reached(Point.UNPREPARE_UNLOCKED)
        return errors


def _log_prepared(
    ref: ClaimRef, record: ClaimRecord | None, error: NpuDraError | None, since: float
) -> None:
    fields: dict[str, object] = {
        "claim": f"{ref.namespace}/{ref.name}",
        "uid": ref.uid,
        "devices": record.device_names if record else [],
        "ms": _ms(since),
    }
    if error is None:
        log.info("claim prepared", extra=fields)
    else:
        log.warning("claim not prepared", extra={**fields, "error": str(error)})


def _ms(since: float) -> float:
    return round(1000 * (trio.current_time() - since), 2)
