"""What this process finds out about itself for probes, over HTTP and grpc.health.v1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from trio_npu_dra import pulse
from trio_npu_dra.kubelet.endpoints import Endpoints
from trio_npu_dra.kubelet.probes import silent_sockets
from trio_npu_dra.kubelet.registration import RegistrationStatus
from trio_npu_dra.npu.watcher import WatchStatus
from trio_npu_dra.observable import Observable
from trio_npu_dra.observe.shared import Shared
from trio_npu_dra.rpc import Bridge
from trio_npu_dra.slices.publisher import PublisherStatus

LOOK_SECONDS: Final = 1.0
"""How long all who probe get the same answer; to find it out takes some 10 ms of CPU."""


@dataclass(eq=False, kw_only=True)
class SelfCheck:
    """Whether one daemon is alive and ready.

    Attributes:
        bridge: Calls our own sockets.
        endpoints: Has our own sockets.
        registration: What the kubelet decided of us.
        publisher: How publishing stands.
        watch: How faults come to be known; None on a node without an Ascend driver.
        claims: Why claims cannot be served; empty when they can.
    """

    bridge: Bridge
    endpoints: Endpoints
    registration: Observable[RegistrationStatus]
    publisher: Observable[PublisherStatus]
    watch: Observable[WatchStatus] | None
    claims: Observable[str]
    _looks: Shared[tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._looks = Shared(self._look, seconds=LOOK_SECONDS)

    async def run(self) -> None:
        """Look at ourselves for those who probe, who wait without this, until cancelled."""
        await self._looks.run()

    async def live(self) -> tuple[str, ...]:
        """Problems that only a restart fixes: stuck loops, silent sockets, folders out of reach.

        A folder of the node that was removed and made anew is another one, which a container sees
        only once it is started again.
        """
        return await self._looks.get()

    async def _look(self) -> tuple[str, ...]:
        silent = await silent_sockets(
            self.bridge,
            service=self.endpoints.service,
            registration=self.endpoints.registration,
        )
        problem = self.claims.value
        unserved = (f"claims cannot be served: {problem}",) if problem else ()
        return (*pulse.stuck(), *unserved, *silent)

    async def ready(self) -> tuple[str, ...]:
        """What this instance lacks to do all of its work.

        Publishing is the work of one instance a node: one that waits for an older one to end lacks
        nothing, or an update would never end.
        """
        return (*await self.live(), *self._missing())

    def _missing(self) -> tuple[str, ...]:
        missing = []
        registration, publisher = self.registration.value, self.publisher.value
        if not registration.registered:
            missing.append(f"not registered with the kubelet {registration.error}".strip())
        if self.watch is not None and not self.watch.value.answered:
            missing.append("the NPUs have not been looked at yet")
        if not (publisher.published or publisher.waiting):
            missing.append(f"no pool was accepted by the API server {publisher.problem}".strip())
        return tuple(missing)
