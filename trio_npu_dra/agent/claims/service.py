"""Prepare and unprepare: from the kubelet's call to a CDI file and back."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import trio

from trio_npu_dra.agent.claims.lifecycle import ClaimLifecycle, ClaimPlan, Outcome
from trio_npu_dra.agent.claims.patience import Attempts, Patience
from trio_npu_dra.agent.claims.planner import ClaimPlanner, ReadClaim
from trio_npu_dra.agent.claims.side_by_side import side_by_side
from trio_npu_dra.agent.claims.steps import Step
from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.kit.base.errors import ClaimUnavailable, DeviceHeld, DriverError, HoldGone
from trio_npu_dra.kit.kubelet.driver import ClaimRef, PreparedDevice, PrepareResult

log = logging.getLogger(__name__)

_LINES: Final = {
    "prepare": ("claim prepared", "claim not prepared", logging.WARNING),
    "unprepare": ("claim unprepared", "claim not unprepared", logging.ERROR),
}
"""The log lines of a claim: of success, of an error, and the error's level."""


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """A call of the kubelet that was answered.

    Attributes:
        operation: The call.
        seconds: How long it took.
        claims: How many claims it named.
        errors: One for each claim that failed.
    """

    operation: Literal["prepare", "unprepare"]
    seconds: float
    claims: int
    errors: tuple[DriverError, ...]


class NodeClaims:
    """The claims of this node; fulfils `kubelet.driver.Driver`.

    Args:
        planner: Plans what a claim is to hold, with this node's ledger and CDI files.
        steps: The steps that claims may need, in order.
        patience: How long an error is worth another try.
        on_call: Called after each answered call.
        on_held: Called with the UID of a claim that keeps another one from being prepared.
    """

    def __init__(
        self,
        planner: ClaimPlanner,
        steps: Sequence[Step] = (),
        *,
        patience: Patience | None = None,
        on_call: Callable[[CallAnswered], object] = lambda _: None,
        on_held: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._planner = planner
        self._lifecycle = ClaimLifecycle(planner.ledger, planner.cdi, steps)
        self._patience = patience or Patience()
        self._on_call = on_call
        self._on_held = on_held

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Make the claims' NPUs available to containers; no claim's error spoils another's answer.

        Of two claims for one device, the first of the call gets it. The call may be cancelled at
        any point, and repeated for a prepared claim.
        """
        since = trio.current_time()
        refs = {ref.uid: ref for ref in claims}
        outcomes: dict[str, Outcome] = {}
        read: dict[str, ReadClaim] = {}

        def plan(uids: Iterable[str]) -> Mapping[str, ClaimPlan | DriverError]:
            return self._planner.plan(read[uid] for uid in uids)

        attempts, due = Attempts(self._patience, since), list(refs)
        while due:
            asked = {uid: refs[uid] for uid in due}
            answers = await side_by_side(partial(self._read, attempts.give_up_at), asked)
            read |= {uid: one for uid, one in answers.items() if isinstance(one, ReadClaim)}
            outcomes |= {uid: one for uid, one in answers.items() if isinstance(one, DriverError)}
            readable = [uid for uid, one in answers.items() if isinstance(one, ReadClaim)]
            outcomes |= await self._lifecycle.prepare(readable, plan)
            failed = _errors_in({uid: outcomes[uid] for uid in due})
            is_any_gone = any(isinstance(error, HoldGone) for error in failed.values())
            due = list(failed) if is_any_gone else await attempts.again(failed)
        errors = _errors_in(outcomes)
        for error in errors.values():
            if isinstance(error, DeviceHeld):
                self._on_held(error.holder)
        if len(read) > 1 and any(map(_lists_npus, read.values())):
            log.warning(  # a call is for one pod
                "the pod has several claims, so a container with more than one of them reads the "
                "NPUs of one alone in ASCEND_VISIBLE_DEVICES (visibleDevices: physical)",
                extra={"claims": [f"{one.ref.namespace}/{one.ref.name}" for one in read.values()]},
            )
        self._report("prepare", refs, errors, since, read)
        return {
            uid: PrepareResult(devices=self._devices(outcome))
            if isinstance(outcome := outcomes[uid], Entry)
            else PrepareResult(error=str(outcome))
            for uid in refs
        }

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Take the claims' NPUs back without asking the API server; an unknown claim is done.

        Returns:
            The errors by UID, empty for a claim that was unprepared.
        """
        since = trio.current_time()
        refs = {ref.uid: ref for ref in claims}
        outcomes: dict[str, Outcome] = {}
        attempts, due = Attempts(self._patience, since), list(refs)
        while due:
            taken = await self._lifecycle.unprepare(due)
            outcomes |= taken
            due = await attempts.again(_errors_in(taken))
        errors = _errors_in(outcomes)
        self._report("unprepare", refs, errors, since)
        return {uid: str(errors.get(uid, "")) for uid in refs}

    async def _read(self, give_up_at: float, _uid: str, ref: ClaimRef) -> ReadClaim | DriverError:
        """Read a claim, unless the API server hangs until *give_up_at*."""
        try:
            with trio.move_on_at(give_up_at):
                return await self._planner.read(ref)
            return ClaimUnavailable("the API server did not answer in time")
        except DriverError as error:
            return error

    def _devices(self, entry: Entry) -> tuple[PreparedDevice, ...]:
        cdi = self._planner.cdi
        return tuple(
            PreparedDevice(
                requests=given.requests,
                pool=given.pool,
                device=given.device,
                cdi_device_ids=(cdi.device_id(entry.uid, given.device, given.share_id),),
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
        read: Mapping[str, ReadClaim] | None = None,
    ) -> None:
        """Log the outcome of each claim, and pass the call on."""
        if not refs:  # a probe asks for none
            return
        seconds = trio.current_time() - since
        success, failure, level = _LINES[operation]
        for uid, ref in refs.items():
            fields: dict[str, object] = {"claim": f"{ref.namespace}/{ref.name}", "uid": uid}
            fields["ms"] = round(1000 * seconds, 2)
            if read is not None:
                devices = [given.device for given in read[uid].allocation] if uid in read else []
                fields["devices"] = list(dict.fromkeys(devices))
            if uid in errors:
                log.log(level, failure, extra={**fields, "error": str(errors[uid])})
            else:
                log.info(success, extra=fields)
        self._on_call(
            CallAnswered(
                operation=operation,
                seconds=seconds,
                claims=len(refs),
                errors=tuple(errors.values()),
            )
        )


def _lists_npus(read: ReadClaim) -> bool:
    return any(given.config.visible_devices == "physical" for given in read.allocation)


def _errors_in(outcomes: Mapping[str, Outcome]) -> dict[str, DriverError]:
    return {uid: one for uid, one in outcomes.items() if isinstance(one, DriverError)}
