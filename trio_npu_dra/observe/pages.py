"""The pages of the HTTP port: `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from trio_npu_dra.kubelet.health_check import Probe, Probes
from trio_npu_dra.observe.http import Answer, App, Request, app


def pages(
    registry: CollectorRegistry, refresh: Callable[[], Awaitable[None]], probes: Probes
) -> App:
    """The application.

    Args:
        registry: The metrics.
        refresh: Called before each scrape; must return soon.
        probes: Asked for each probe.
    """

    async def metrics(request: Request) -> Answer:
        await refresh()
        encode, content_type = choose_encoder(request.accept)
        return Answer(body=encode(registry), content_type=content_type)

    return app(
        {
            ("GET", "/metrics"): metrics,
            ("GET", "/healthz"): partial(_answer, probes.live),
            ("GET", "/readyz"): partial(_answer, probes.ready),
        }
    )


async def _answer(probe: Probe, _: Request) -> Answer:
    problems = await probe()
    if problems:
        return Answer(status=503, body="".join(f"{line}\n" for line in problems))
    return Answer(body="ok\n")
