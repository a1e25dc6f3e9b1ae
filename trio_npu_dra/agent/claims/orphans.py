"""Takes back orphaned claims: no pod needs them, and the kubelet forgot to unprepare them.

A claim is an orphan if it does not exist, if its allocation has none of its devices here, or if it
is not reserved. It may be reserved again at any moment, and then the kubelet prepares it. So
a first look only marks the record as a suspected orphan, and each prepare removes the mark. Half a
minute later, a second look takes the claim back if the mark is still there and the API server
confirms it without its cache.
"""

import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import trio

from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.api.claims import ClaimReader
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import KubeError, NotFound, StorageError, Unreadable

log = logging.getLogger(__name__)

_ROUND_SECONDS = 60.0  # between two rounds, each of which looks at the claims that are due
_LOOK_SECONDS = 600.0  # at least, between two looks at one claim: the kubelet retries by itself
# At least, for a suspected orphan, and while another claim waits for the devices. The containers of
# a pod that was deleted by force have ended by then, or their processes are seen.
_HURRIED_SECONDS = 30.0
_JITTER = 0.2  # at most so much longer, so that the nodes of a cluster do not ask in step
_ASK_STUCK_SECONDS = 60.0  # for one request or two
_FORGET_STUCK_SECONDS = 300.0  # for a DCMI call for each chip


def claims_among(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries of claims, without those that are being undone."""
    for entry in entries:
        if entry.holder.kind is HolderKind.CLAIM and entry.state is not EntryState.UNDOING:
            yield entry


async def is_needed(
    entry: Entry, reader: ClaimReader, *, driver_name: str, is_cached: bool = False
) -> bool:
    """Whether the API server's claim says that a pod may need the devices of *entry*.

    Raises:
        KubeError: No answer.
    """
    holder = entry.holder
    try:
        claim = await reader.get(ResourceClaim, holder.name, holder.namespace, is_cached=is_cached)
    except NotFound:
        return False
    if not claim.metadata.uid:
        raise Unreadable(f"claim {entry} has no UID in the answer")
    status = claim.status
    if claim.metadata.uid != entry.uid or status.allocation is None:
        return False
    given = {
        (result.pool, result.device)
        for result in status.allocation.devices.results
        if result.driver == driver_name
    }
    has = {(held.pool, held.device) for held in entry.allocation}
    return bool(status.reserved_for) and not given.isdisjoint(has)


@dataclass(frozen=True, slots=True)
class _Look:
    """When the next look at a claim is due, and when the last one was (trio's clock)."""

    due_at: float
    last_at: float = -_HURRIED_SECONDS


def _first_pause(entry: Entry) -> float:
    """Seconds until this daemon's first look at a claim; a suspected orphan comes sooner."""
    return _HURRIED_SECONDS if entry.doubted else random.uniform(0, _LOOK_SECONDS)  # noqa: S311 - no secret


class OrphanedClaims:
    """Looks for orphaned claims and marks them *undoing*; the repair does the rest.

    Args:
        ledger: Who holds what.
        reader: Reads claims: at most one small GET for each claim in ten minutes, and two more
            before a claim is taken back, because the API server's cache may lag or be cut off.
        is_busy: Whether a process uses a chip with one of these device nodes of the host.
        driver_name: The driver of our results in an allocation.
    """

    def __init__(
        self,
        ledger: Ledger,
        reader: ClaimReader,
        is_busy: Callable[[Collection[str]], Awaitable[bool]],
        *,
        driver_name: str,
    ) -> None:
        self._ledger = ledger
        self._reader = reader
        self._is_busy = is_busy
        self._driver_name = driver_name
        self._looks: dict[str, _Look] = {}
        self._hurry = trio.Event()

    def hurry(self, uid: str) -> None:
        """Look at a claim soon: it is suspected, or another claim waits for its devices."""
        look = self._looks.get(uid) or _Look(due_at=0)
        self._looks[uid] = replace(look, due_at=min(look.due_at, look.last_at + _HURRIED_SECONDS))
        self._hurry.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look at all claims, each in its time, until cancelled."""
        task_status.started()
        while True:
            round_at = trio.current_time() + _ROUND_SECONDS
            with trio.move_on_at(min([round_at, *(look.due_at for look in self._looks.values())])):
                await self._hurry.wait()
            self._hurry = trio.Event()
            now = trio.current_time()
            known = {entry.uid: entry for entry in claims_among(self._ledger.by_uid.values())}
            self._looks = {
                uid: self._looks.get(uid) or _Look(due_at=now + _first_pause(entry))
                for uid, entry in known.items()
            }
            for uid, look in list(self._looks.items()):
                if look.due_at <= now:
                    pause = _LOOK_SECONDS * random.uniform(1, 1 + _JITTER)  # noqa: S311 - no secret
                    self._looks[uid] = _Look(due_at=now + pause, last_at=now)
                    try:
                        if await self._look_at(known[uid]):
                            self.hurry(uid)
                    except StorageError as error:
                        log.warning("orphaned claim stays: %s", error)

    async def _look_at(self, entry: Entry) -> bool:
        """Suspect a claim, or take back a suspected one; whether another look is due soon."""
        ask = partial(is_needed, entry, self._reader, driver_name=self._driver_name)
        try:
            with watchdog.step(f"looking whether claim {entry} exists", limit=_ASK_STUCK_SECONDS):
                needed = await ask(is_cached=True)
                is_sure = not needed and entry.doubted and not await ask()
        except KubeError:
            return entry.doubted
        if needed is entry.doubted:
            await self._note(entry, replace(entry, doubted=not needed))
        if not is_sure:
            return not needed and not entry.doubted
        with watchdog.step(f"forgetting claim {entry}", limit=_FORGET_STUCK_SECONDS):
            nodes = {node for device in entry.devices for node in device.nodes.values()}
            taken = replace(entry, state=EntryState.UNDOING)
            if not await self._is_busy(nodes) and await self._note(entry, taken):
                log.warning(
                    "orphaned claim is unprepared",
                    extra={"claim": str(entry), "uid": entry.uid, "devices": entry.device_names},
                )
        return False

    async def _note(self, known: Entry, entry: Entry) -> bool:
        """Replace a record if it is still *known*; returns whether it was."""

        def replace_known() -> bool:
            is_same = self._ledger.by_uid.get(known.uid) == known
            if is_same:
                self._ledger.put(entry)
            return is_same

        return await self._ledger.within(replace_known)
