"""Writes the status of claims: what their devices are, and whether they are ready.

It writes once a claim is prepared, and when its facts change while it is held; the API server
removes what it wrote with the allocation. Of a claim that an earlier daemon has prepared it first
reads what that one wrote. No failure here reaches a prepare. A write takes the event loop for as
long as a prepare, so it waits while calls of the kubelet come, but not for long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

import trio

from trio_npu_dra.agent.devices.npu_status import ClaimStatusWritten
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.agent.report.claim_status import (
    Reported,
    Statuses,
    device_statuses,
    note_status,
    say_the_same,
    stamped,
)
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.root_info import Levels, read_levels
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import ObjectMeta, ResourceClaim, ResourceClaimStatus
from trio_npu_dra.kit.base import disk, watchdog
from trio_npu_dra.kit.base.errors import Forbidden, KubeError, Unreadable
from trio_npu_dra.kit.base.observable import Observable, derive
from trio_npu_dra.kit.base.pace import ChangePace, Retry

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 600.0
"""Until the next try for a claim whose status the API server forbids, and the next look at all: no
event reports that the root info has changed."""

QUIET_SECONDS: Final = 0.2
"""How long no call of the kubelet was answered, at least, when the status of claims is written."""

LATEST_SECONDS: Final = 2.0
"""Until it is written although calls come."""

_LACKS_RIGHT: Final = 'requires resource="resourceclaims/driver"'
"""What the API server says if only that right is missing; it calls the claim invalid (422)."""

_STUCK_SECONDS: Final = 60.0  # one request, which has a deadline of its own


async def write_claim_statuses(
    client: KubeClient,
    board: Observable[Board],
    ledger: Ledger,
    calls: Observable[int],
    reported: Reported,
    *,
    driver_name: str,
    host: Host,
    on_event: Callable[[ClaimStatusWritten], object] = lambda _: None,
) -> NoReturn:
    """Keep the status of prepared claims right, until cancelled.

    It needs `get` on resourceclaims, `patch` on resourceclaims/status, and from Kubernetes 1.36
    `associated-node:patch` on resourceclaims/driver, a subresource that no client can ask for.

    Args:
        client: Where claims are.
        board: The newest facts of chips; nothing is written before there is one.
        ledger: Which claims are prepared.
        calls: Changes when a call of the kubelet was answered.
        reported: What the API server has of our devices by a claim's UID, as it was read or written
            last; a claim that was not is absent.
        driver_name: Names the devices, and is the field manager.
        host: Has the root info of a 950.
        on_event: Called after each answer.
    """
    await board.wait_until(lambda found: bool(found.chips))
    writer = _Writer(
        client=client,
        board=board,
        ledger=ledger,
        reported=reported,
        driver_name=driver_name,
        calls=calls,
        host=host,
        on_event=on_event,
    )
    async with trio.open_nursery() as nursery:
        follow = partial(derive, lazily=[ledger.holds, calls, reported])
        await nursery.start(follow, writer.news, writer.count_news, board)
        await writer.run()


@dataclass(eq=False, kw_only=True)
class _Writer:
    """The state of one `write_claim_statuses`.

    Attributes:
        news: Changes when something may have to be written.
        not_before: When to try again for claims that the API server forbids (trio's clock).
        failed: The claims whose last request failed. They come last, because one may fail for ever,
            if its author likes: one without room for more.
        is_refused: Whether it has forbidden the last one; the log says so once.
    """

    client: KubeClient
    board: Observable[Board]
    ledger: Ledger
    calls: Observable[int]
    reported: Reported
    driver_name: str
    host: Host
    on_event: Callable[[ClaimStatusWritten], object]
    news: Observable[int] = field(default_factory=lambda: Observable(0))
    not_before: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    is_refused: bool = False
    pace: ChangePace = field(default_factory=ChangePace)
    retry: Retry = field(default_factory=lambda: Retry("writing the status of claims", log))

    def count_news(self) -> int:
        """One more than before."""
        return self.news.value + 1

    async def run(self) -> NoReturn:
        """Write what differs, claim by claim, with the newest facts of each."""
        while True:
            seen = self.news.value
            try:
                await self._catch_up()
            except KubeError as error:
                await trio.sleep(self.retry.failed(error))
                continue
            self.retry.recovered()
            look_at = trio.current_time() + AGAIN_SECONDS
            with trio.move_on_at(min([look_at, *self.not_before.values()])):
                await self.news.wait_for_other(seen)

    async def _catch_up(self) -> None:
        latest = trio.current_time() + LATEST_SECONDS
        answered = await self._wait_for_quiet(latest)
        self._forget_ended()
        levels = await disk.run(partial(read_levels, self.host, self.board.value.chips))
        for uid in sorted(self.ledger.by_uid, key=self.failed.__contains__):
            await trio.lowlevel.checkpoint()  # there may be hundreds, and calls come meanwhile
            if self.calls.value != answered:
                answered = await self._wait_for_quiet(latest)
            self.failed.discard(uid)
            try:
                await self._keep(uid, levels)
            except KubeError:
                self.failed.add(uid)
                raise

    async def _wait_for_quiet(self, latest: float) -> int:
        """Wait until no calls come, and until *latest* (trio's clock) at most.

        Returns:
            How many calls were answered until then.
        """
        while True:
            answered = self.calls.value
            await trio.sleep_until(min(trio.current_time() + QUIET_SECONDS, latest))
            if self.calls.value == answered:
                return answered

    async def _keep(self, uid: str, levels: Levels) -> None:
        """Make the status of a claim right.

        Raises:
            KubeError: It is worth another try soon.
        """
        entry = self.ledger.by_uid.get(uid)
        if (
            entry is None
            or entry.holder.kind is not HolderKind.CLAIM
            or entry.state is not EntryState.READY
            or uid in self.not_before
        ):
            return
        wanted = device_statuses(entry, self.board.value, levels, driver_name=self.driver_name)
        if not wanted:
            return
        if uid not in self.reported.value:
            await self._read(entry)
        known = self.reported.value.get(uid, ())
        if not say_the_same(wanted, known):
            await self._write(entry, stamped(wanted, known, time.time()))
            await self.pace.turn()

    async def _read(self, entry: Entry) -> None:
        """Learn what an earlier daemon has written, if the claim can be read; its cache will do."""
        holder = entry.holder
        try:
            with watchdog.step("reading the status of a claim", limit=_STUCK_SECONDS):
                claim = await self.client.get(
                    ResourceClaim, holder.name, holder.namespace, is_cached=True
                )
        except KubeError as error:
            # One that its author has made unreadable can still be written.
            if error.retryable and not isinstance(error, Unreadable):
                raise
        else:
            note_status(claim, self.reported, driver_name=self.driver_name)

    async def _write(self, entry: Entry, statuses: Statuses) -> None:
        holder, fields = entry.holder, {"claim": str(entry), "uid": entry.uid}
        claim = ResourceClaim(
            metadata=ObjectMeta(name=holder.name, namespace=holder.namespace, uid=holder.uid),
            status=ResourceClaimStatus(devices=statuses),
        )
        try:
            with watchdog.step("writing the status of a claim", limit=_STUCK_SECONDS):
                await self.client.apply(claim, manager=self.driver_name, subresource="status")
        except KubeError as error:
            self.on_event(ClaimStatusWritten(error=error))
            if error.retryable:
                raise
            if isinstance(error, Forbidden) or _LACKS_RIGHT in str(error):
                self._put_off(entry, error)
                return
            # The claim is gone, is another one, or was allocated anew: a prepare will tell.
            log.info("status of a claim is left", extra={**fields, "error": str(error)})
        else:
            self.on_event(ClaimStatusWritten())
            if self.is_refused:
                self.is_refused = False
                log.info("the status of claims is written again")
        self.reported.set({**self.reported.value, entry.uid: statuses})

    def _put_off(self, entry: Entry, error: KubeError) -> None:
        self.not_before[entry.uid] = trio.current_time() + AGAIN_SECONDS
        if not self.is_refused:
            self.is_refused = True
            log.warning(
                "the API server forbids the status of claims, which does not say what their NPUs "
                "are: apply k8s/base/claim-status.yaml, or set --claim-status=false",
                extra={"claim": str(entry), "uid": entry.uid, "error": str(error)},
            )

    def _forget_ended(self) -> None:
        held, now = self.ledger.by_uid, trio.current_time()
        self.failed &= held.keys()
        self.not_before = {
            uid: at for uid, at in self.not_before.items() if uid in held and at > now
        }
        self.reported.set({uid: one for uid, one in self.reported.value.items() if uid in held})
