"""The DRAPlugin service, v1 and v1beta1, in front of a `Driver`.

The kubelet fails a whole pod when an answer lacks a claim it asked for, or has one it did not ask
for. So each call is answered with exactly the UIDs of its request, whatever the driver returns.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import trio

from trio_npu_dra.kit.grpc import Route, methods
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.kit.kubelet.driver import ClaimRef, Driver, PrepareResult

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

ERROR_LIMIT = 4096
"""Characters of one claim's error: it becomes an event of the pod, which holds even less."""

CLAIM_LIMIT = 512
"""Claims of one call. The kubelet asks for those of one pod."""

_UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?", re.ASCII)
"""What a UID may look like: drivers name files after it."""


def routes(driver: Driver) -> tuple[Route, ...]:
    """The methods of DRAPlugin v1 and v1beta1, answered by *driver*."""

    async def prepare_v1(
        request: v1.NodePrepareResourcesRequest,
    ) -> v1.NodePrepareResourcesResponse:
        return _prepared(await prepare(driver, request.claims))

    async def unprepare_v1(
        request: v1.NodeUnprepareResourcesRequest,
    ) -> v1.NodeUnprepareResourcesResponse:
        errors = await unprepare(driver, request.claims)
        return v1.NodeUnprepareResourcesResponse(
            claims={
                uid: v1.NodeUnprepareResourceResponse(error=error) for uid, error in errors.items()
            }
        )

    async def prepare_v1beta1(
        request: v1.NodePrepareResourcesRequest,
    ) -> v1.NodePrepareResourcesResponse:
        reply = await prepare_v1(request)
        for result in reply.claims.values():
            for device in result.devices:
                device.share_id = None
        return reply

    return (
        methods.NODE_PREPARE_RESOURCES_V1.handled_by(prepare_v1),
        methods.NODE_UNPREPARE_RESOURCES_V1.handled_by(unprepare_v1),
        methods.NODE_PREPARE_RESOURCES_V1BETA1.handled_by(prepare_v1beta1),
        methods.NODE_UNPREPARE_RESOURCES_V1BETA1.handled_by(unprepare_v1),
    )


async def prepare(driver: Driver, claims: Iterable[v1.Claim]) -> dict[str, PrepareResult]:
    """Prepare *claims*; the result has exactly their UIDs.

    A claim that is named twice is prepared once. The driver is not called for a malformed claim,
    for an empty request, or for one of more than `CLAIM_LIMIT` claims, which is refused.
    """
    results = await _ask(
        "prepare", driver.prepare, claims, lambda error: PrepareResult(error=error)
    )
    return {
        uid: PrepareResult(error=_sendable(result.error)) if result.error else result
        for uid, result in results.items()
    }


async def unprepare(driver: Driver, claims: Iterable[v1.Claim]) -> dict[str, str]:
    """Unprepare *claims*; the error texts, empty on success, have exactly their UIDs."""
    errors = await _ask("unprepare", driver.unprepare, claims, str)
    return {uid: _sendable(error) for uid, error in errors.items()}


async def _ask(
    verb: str,
    call: Callable[[Sequence[ClaimRef]], Awaitable[Mapping[str, ResultT]]],
    claims: Iterable[v1.Claim],
    failed: Callable[[str], ResultT],
) -> dict[str, ResultT]:
    """Call the driver and complete its answer; *failed* makes a claim's result of an error text."""
    named = {claim.uid: ClaimRef(claim.namespace, claim.uid, claim.name) for claim in claims}
    if len(named) > CLAIM_LIMIT:
        flaw = f"the call names {len(named)} claims: at most {CLAIM_LIMIT} are {verb}d at once"
        log.error("a call with too many claims was refused", extra={"call": verb, "error": flaw})
        return dict.fromkeys(named, failed(flaw))
    wellformed = [claim for claim in named.values() if not _flaw(claim)]
    started = trio.current_time()
    returned = await call(wellformed) if wellformed else {}
    if unknown := returned.keys() - named.keys():
        log.error(
            "the driver answered for claims that the call does not name",
            extra={"call": verb, "claims": sorted(unknown)},
        )
    duration = trio.current_time() - started
    log.debug("call answered", extra={"call": verb, "claims": len(named), "ms": duration * 1000})
    return {
        uid: returned[uid]
        if uid in returned
        else failed(_flaw(claim) or f"the driver gave no answer for claim {claim.name}")
        for uid, claim in named.items()
    }


def _sendable(error: str) -> str:
    """The error as text that a message can carry: file names may have bytes that are not UTF-8."""
    return error[:ERROR_LIMIT].encode(errors="replace").decode()


def _flaw(claim: ClaimRef) -> str:
    if not _UID.fullmatch(claim.uid):
        return f"claim UID {claim.uid!r} is not a UID"
    if not claim.namespace or not claim.name:
        return f"claim {claim.uid} comes without a namespace or a name"
    return ""


def _prepared(results: Mapping[str, PrepareResult]) -> v1.NodePrepareResourcesResponse:
    return v1.NodePrepareResourcesResponse(
        claims={
            uid: v1.NodePrepareResourceResponse(
                devices=[
                    v1.Device(
                        request_names=list(device.requests),
                        pool_name=device.pool,
                        device_name=device.device,
                        cdi_device_ids=list(device.cdi_device_ids),
                        share_id=device.share_id,
                    )
                    for device in result.devices
                ],
                error=result.error,
            )
            for uid, result in results.items()
        }
    )
