"""The pages of the HTTP port: `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from trio_npu_dra.kit.http import (
    Coalesced,
    HttpRequest,
    HttpResponse,
    LateHandler,
    answered,
    routed,
)
from trio_npu_dra.kit.kubelet.probes import Probe, Probes

SCRAPE_SECONDS: Final = 1.0
"""How long scrapes share one answer; making it takes the event loop 10 to 20 ms."""

_OPENMETRICS: Final = "application/openmetrics-text"
_FORMATS: Final = (_OPENMETRICS, "text/plain")


async def answer_pages(
    registry: CollectorRegistry,
    refresh: Callable[[], Awaitable[None]],
    probes: Probes,
    pages: LateHandler,
) -> None:
    """Answer requests for *pages*, until cancelled; *refresh* runs before each scrape."""

    async def scrape(request: HttpRequest) -> HttpResponse:
        await refresh()
        encode, content_type = choose_encoder(request.accept)
        return HttpResponse(body=encode(registry), content_type=content_type)

    async def metrics(request: HttpRequest) -> HttpResponse:
        return await scrapes[_OPENMETRICS if _OPENMETRICS in request.accept else "text/plain"].get()

    scrapes = {
        accept: Coalesced(
            partial(answered, scrape, HttpRequest(path="/metrics", accept=accept)),
            seconds=SCRAPE_SECONDS,
        )
        for accept in _FORMATS
    }
    pages.become(
        routed(
            {
                ("GET", "/metrics"): metrics,
                ("GET", "/healthz"): partial(_answer, probes.live),
                ("GET", "/readyz"): partial(_answer, probes.ready),
            }
        )
    )
    async with trio.open_nursery() as nursery:
        for shared in scrapes.values():
            nursery.start_soon(shared.run)


async def _answer(probe: Probe, _: HttpRequest) -> HttpResponse:
    problems = await probe()
    if problems:
        return HttpResponse(status=503, body="".join(f"{line}\n" for line in problems))
    return HttpResponse(body="ok\n")
