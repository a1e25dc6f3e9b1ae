"""The pages of the HTTP port: `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from trio_npu_dra.kit.http import Coalesced, Handler, HttpRequest, HttpResponse, routed
from trio_npu_dra.kit.kubelet.probes import Probe, Probes

SCRAPE_SECONDS: Final = 1.0
"""How long scrapes share one answer; making it takes the event loop 10 to 20 ms."""

_OPENMETRICS: Final = "application/openmetrics-text"
_FORMATS: Final = (_OPENMETRICS, "text/plain")


def daemon_pages(
    registry: CollectorRegistry, refresh: Callable[[], Awaitable[None]], probes: Probes
) -> Handler:
    """The handler of all pages; *refresh* runs before each scrape."""

    async def scrape(accept: str) -> HttpResponse:
        await refresh()
        encode, content_type = choose_encoder(accept)
        return HttpResponse(body=encode(registry), content_type=content_type)

    async def metrics(request: HttpRequest) -> HttpResponse:
        return await scrapes[_OPENMETRICS if _OPENMETRICS in request.accept else "text/plain"].get()

    scrapes = {
        accept: Coalesced(partial(scrape, accept), seconds=SCRAPE_SECONDS) for accept in _FORMATS
    }
    return routed(
        {
            ("GET", "/metrics"): metrics,
            ("GET", "/healthz"): partial(_answer, probes.live),
            ("GET", "/readyz"): partial(_answer, probes.ready),
        }
    )


async def _answer(probe: Probe, _: HttpRequest) -> HttpResponse:
    problems = await probe()
    if problems:
        return HttpResponse(status=503, body="".join(f"{line}\n" for line in problems))
    return HttpResponse(body="ok\n")
