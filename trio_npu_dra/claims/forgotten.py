"""Takes back claims that do not exist any more and that the kubelet forgot to unprepare."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import trio

from trio_npu_dra import pulse
from trio_npu_dra.claims.reading import ClaimReader
from trio_npu_dra.claims.service import NodeClaims
from trio_npu_dra.errors import KubeError, NotFound
from trio_npu_dra.holds.entry import Entry
from trio_npu_dra.holds.hold import HolderKind
from trio_npu_dra.holds.ledger import Ledger
from trio_npu_dra.kube.objects import ResourceClaim
from trio_npu_dra.kubelet.driver import ClaimRef

log = logging.getLogger(__name__)

_ROUND_SECONDS = 60.0  # between two rounds, in which those are asked about whose time has come
_LOOK_SECONDS = 600.0  # between two looks at one claim at least: the kubelet has retries of its own
_JITTER = 0.2  # of that time besides, so that the nodes of a cluster do not ask in step
_ASK_STUCK_SECONDS = 60.0  # one request
_FORGET_STUCK_SECONDS = 300.0  # a call for each of its chips, and the patience of an unprepare


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """When a claim is looked for next (trio's clock), and whether it was gone at the last look."""

    due_at: float
    was_gone: bool = False


async def forget_gone_claims(
    ledger: Ledger,
    claims: NodeClaims,
    reader: ClaimReader,
    is_busy: Callable[[Collection[str]], Awaitable[bool]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Unprepare claims that were gone at two looks one after the other, without end.

    The looks are answered from the API server's cache, which may lag or be of a server that was
    cut off: before a claim is taken back, the API server is asked to read it anew.

    Args:
        ledger: Who holds what.
        claims: Unprepares them.
        reader: Tells whether a claim exists: one small GET a claim each ten minutes at most, and
            one more for a claim that is to be taken back.
        is_busy: Whether a process uses a chip with one of these device nodes of the host.
        task_status: Told once started.
    """
    looks: dict[str, _Look] = {}
    task_status.started()
    while True:
        await trio.sleep(_ROUND_SECONDS)
        now = trio.current_time()
        known = {
            uid: entry
            for uid, entry in ledger.by_uid.items()
            if entry.holder.kind is HolderKind.CLAIM
        }
        looks = {
            uid: looks.get(uid) or _Look(due_at=now + random.uniform(0, _LOOK_SECONDS))  # noqa: S311
            for uid in known
        }
        for uid, look in looks.items():
            if look.due_at <= now:
                looks[uid] = await _looked(known[uid], look, claims, reader, is_busy)


async def _looked(
    entry: Entry,
    last: _Look,
    claims: NodeClaims,
    reader: ClaimReader,
    is_busy: Callable[[Collection[str]], Awaitable[bool]],
) -> _Look:
    """Look for one claim, take it back if it is gone and was gone before; the next look."""
    is_gone = await _is_gone(entry, reader, is_cached=True)
    if is_gone and last.was_gone:
        is_gone = await _is_gone(entry, reader, is_cached=False)  # the cache may be behind
        if is_gone:
            await _forget(entry, claims, is_busy)
    pause = _LOOK_SECONDS * random.uniform(1, 1 + _JITTER)  # noqa: S311 - no secret
    return _Look(
        due_at=trio.current_time() + pause,
        was_gone=last.was_gone if is_gone is None else is_gone,
    )


async def _is_gone(entry: Entry, reader: ClaimReader, *, is_cached: bool) -> bool | None:
    """Whether the claim is gone or replaced; `None` when the API server does not say."""
    holder = entry.holder
    with pulse.step(f"looking whether claim {entry} exists", limit=_ASK_STUCK_SECONDS):
        try:
            claim = await reader.get(
                ResourceClaim, holder.name, holder.namespace, is_cached=is_cached
            )
        except NotFound:
            return True
        except KubeError:
            return None
    if not claim.metadata.uid:
        return None  # each object has one: this is an answer of something else
    return claim.metadata.uid != holder.uid


async def _forget(
    entry: Entry, claims: NodeClaims, is_busy: Callable[[Collection[str]], Awaitable[bool]]
) -> None:
    """Unprepare a claim, unless a process uses its chips."""
    with pulse.step(f"forgetting claim {entry}", limit=_FORGET_STUCK_SECONDS):
        nodes = {node for device in entry.devices for node in device.nodes.values()}
        if not await is_busy(nodes):
            log.warning(
                "claim does not exist any more and is unprepared", extra={"claim": str(entry)}
            )
            await claims.unprepare([_ref(entry)])


def _ref(entry: Entry) -> ClaimRef:
    holder = entry.holder
    return ClaimRef(namespace=holder.namespace, uid=holder.uid, name=holder.name)
