"""Prepare and unprepare: the way of a claim from the kubelet's call to a CDI file and back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import trio

from trio_npu_dra.agent.claims.cdi import CdiFolder
from trio_npu_dra.agent.claims.lifecycle import ClaimLifecycle, Wanted
from trio_npu_dra.agent.claims.patience import Attempts, Patience
from trio_npu_dra.agent.claims.planner import ClaimPlanner, ClaimReader, Look
from trio_npu_dra.agent.claims.side_by_side import side_by_side
from trio_npu_dra.agent.claims.steps import Step
from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.offers import NO_PARTITIONS, PartitionMode
from trio_npu_dra.kit.base.errors import ClaimUnavailable, DeviceHeld, DriverError, HoldGone
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.driver import ClaimRef, PreparedDevice, PrepareResult

log = logging.getLogger(__name__)


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
    errors: tuple[DriverError, ...]


class NodeClaims:
    """The claims of this node; fulfils `kubelet.driver.Driver`.

    Args:
        reader: Where claims are read.
        board: The chips of this node; an empty Board means that they are not known yet.
        host: Tells the device nodes of a chip.
        ledger: Who holds what.
        cdi: Where the container runtime finds what a claim gives.
        steps: What may have to be done for a claim besides, in order.
        driver_name: Results of other drivers are theirs.
        pool_name: The pool of this node.
        partitioning: Whether chips are cut for claims; never without it.
        patience: How long faults are worth another try.
        on_call: Called after each call that was answered.
        on_held: Called with the UID of a claim which keeps another one from being prepared.
        after_reply: Calls a function when the answer is on its way: log lines, and *on_call*.
    """

    def __init__(
        self,
        *,
        reader: ClaimReader,
        board: Observable[Board],
        host: Host,
        ledger: Ledger,
        cdi: CdiFolder,
        steps: Sequence[Step] = (),
        driver_name: str,
        pool_name: str,
        partitioning: Observable[PartitionMode] | None = None,
        patience: Patience | None = None,
        on_call: Callable[[CallAnswered], object] = lambda _: None,
        on_held: Callable[[str], object] = lambda _: None,
        after_reply: Callable[[Callable[[], object]], object] = lambda function: function(),
    ) -> None:
        self._reading = ClaimPlanner(
            reader=reader,
            board=board,
            host=host,
            ledger=ledger,
            cdi=cdi,
            driver_name=driver_name,
            pool_name=pool_name,
            partitioning=partitioning or Observable(NO_PARTITIONS),
        )
        self._holding = ClaimLifecycle(ledger, cdi, steps)
        self._cdi = cdi
        self._patience = patience or Patience()
        self._on_call = on_call
        self._on_held = on_held
        self._after_reply = after_reply

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Make the claims' NPUs available to containers: one answer a UID, none spoils another's.

        Of two claims for one device the one that the call names first gets it. May be cancelled at
        any point, and called again for a prepared claim.
        """
        since = trio.current_time()
        refs = {ref.uid: ref for ref in claims}
        wanted: dict[str, Wanted] = {}
        entries: dict[str, Entry] = {}
        errors: dict[str, DriverError] = {}
        attempts, due = Attempts(self._patience, since), list(refs)
        while due:
            unread = {uid: refs[uid] for uid in due if uid not in wanted}
            read = await side_by_side(partial(self._read, since, self._reading.look()), unread)
            wanted |= {uid: one for uid, one in read.items() if isinstance(one, Wanted)}
            outcomes = await self._holding.prepare(
                {uid: wanted[uid] for uid in due if uid in wanted}
            )
            entries |= {uid: one for uid, one in outcomes.items() if isinstance(one, Entry)}
            failed = {uid: one for uid, one in outcomes.items() if isinstance(one, DriverError)}
            errors |= {uid: one for uid, one in read.items() if isinstance(one, DriverError)}
            errors |= failed
            gone = {uid for uid, error in failed.items() if isinstance(error, HoldGone)}
            wanted = {uid: one for uid, one in wanted.items() if uid not in gone}  # read it anew
            due = list(failed) if gone else await attempts.again(failed)
        errors = {uid: error for uid, error in errors.items() if uid not in entries}
        for error in errors.values():
            if isinstance(error, DeviceHeld):
                self._on_held(error.holder)
        known = {uid: one.entry for uid, one in wanted.items()}
        self._report("prepare", refs, errors, since, partial(_log_prepared, known=known))
        return {
            uid: PrepareResult(devices=self._devices(entries[uid]))
            if uid in entries
            else PrepareResult(error=str(errors[uid]))
            for uid in refs
        }

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Take the claims' NPUs back; an unknown claim is done already. Asks no API server.

        Returns:
            What went wrong by UID, empty when nothing did.
        """
        since = trio.current_time()
        refs = {ref.uid: ref for ref in claims}
        errors: dict[str, DriverError] = {}
        attempts, due = Attempts(self._patience, since), list(refs)
        while due:
            outcomes = await self._holding.unprepare(due)
            failed = {uid: one for uid, one in outcomes.items() if isinstance(one, DriverError)}
            errors = {uid: one for uid, one in errors.items() if uid not in due} | failed
            due = await attempts.again(failed)
        self._report("unprepare", refs, errors, since, _log_unprepared)
        return {uid: str(errors.get(uid, "")) for uid in refs}

    async def _read(
        self, since: float, look: Look, uid: str, ref: ClaimRef
    ) -> Wanted | DriverError:
        """What a claim is to hold, tried for as long as that may help."""
        attempts = Attempts(self._patience, since)
        while True:
            try:
                with trio.move_on_at(attempts.give_up_at):
                    return await self._reading.read(ref, look)
                return ClaimUnavailable("the API server did not answer in time")
            except DriverError as error:
                if not await attempts.again({uid: error}):
                    return error
            look = self._reading.look()

    def _devices(self, entry: Entry) -> tuple[PreparedDevice, ...]:
        return tuple(
            PreparedDevice(
                requests=given.requests,
                pool=given.pool,
                device=given.device,
                cdi_device_ids=(self._cdi.device_id(entry.uid, given.device, given.share_id),),
                share_id=given.share_id,
            )
            for given in entry.allocation
        )

    def _report(
        self,
        operation: Literal["prepare", "unprepare"],
        refs: Mapping[str, ClaimRef],
        errors: Mapping[str, DriverError],
        since: float,
        say: Callable[[ClaimRef, DriverError | None, float], None],
    ) -> None:
        """Say what became of each claim, once the answer is on its way."""
        if not refs:  # a probe asks for none
            return
        seconds = trio.current_time() - since
        answered = CallAnswered(
            operation=operation, seconds=seconds, claims=len(refs), errors=tuple(errors.values())
        )

        def tell() -> None:
            for uid, ref in refs.items():
                say(ref, errors.get(uid), seconds)
            self._on_call(answered)

        self._after_reply(tell)


def _log_prepared(
    ref: ClaimRef, error: DriverError | None, seconds: float, *, known: Mapping[str, Entry]
) -> None:
    devices = known[ref.uid].device_names if ref.uid in known else []
    fields = _fields(ref, seconds) | {"devices": devices}
    if error is None:
        log.info("claim prepared", extra=fields)
    else:
        log.warning("claim not prepared", extra={**fields, "error": str(error)})


def _log_unprepared(ref: ClaimRef, error: DriverError | None, seconds: float) -> None:
    fields = _fields(ref, seconds)
    if error is None:
        log.info("claim unprepared", extra=fields)
    else:
        log.error("claim not unprepared", extra={**fields, "error": str(error)})


def _fields(ref: ClaimRef, seconds: float) -> dict[str, object]:
    ms = round(1000 * seconds, 2)
    return {"claim": f"{ref.namespace}/{ref.name}", "uid": ref.uid, "ms": ms}
