"""Checks the daemon for probes, over HTTP and grpc.health.v1."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trio_npu_dra.agent.holds.owner import Life
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.kit.base import disk, watchdog
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.http import Coalesced
from trio_npu_dra.kit.kubelet.endpoints import Endpoints
from trio_npu_dra.kit.kubelet.probes import silent_sockets
from trio_npu_dra.kit.kubelet.registration import RegistrationStatus
from trio_npu_dra.kit.pool import PublisherStatus

LOOK_SECONDS: Final = 1.0
"""How long probes share one answer; a check takes some 10 ms of CPU."""


@dataclass(eq=False, kw_only=True)
class SelfCheck:
    """Checks whether the daemon is alive and ready."""

    endpoints: Endpoints
    life: Observable[Life]
    lacks: Callable[[], tuple[str, ...]]  # to serve, while it waits to own the node
    registration: Observable[RegistrationStatus]
    publisher: Observable[PublisherStatus]
    board: Observable[Board]
    claims: Observable[str]  # why claims cannot be served
    locks: Observable[str]  # why the node cannot be owned
    _looks: Coalesced[tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._looks = Coalesced(self._find_problems, seconds=LOOK_SECONDS)

    async def live(self) -> tuple[str, ...]:
        """Problems that only a restart fixes: stuck loops, silent sockets, folders out of reach.

        If a folder of the node was removed and made again, a container sees the new one only after
        a restart. While the disk stalls there are none: a restart would have to wait for it too.
        """
        return await self._looks.get()

    async def _find_problems(self) -> tuple[str, ...]:
        if disk.stalls():
            return ()
        silent: tuple[str, ...] = ()
        if self.life.value is not Life.WAITS:
            silent = await silent_sockets(
                service=self.endpoints.service,
                registration=self.endpoints.registration,
            )
        problem = self.claims.value or self.locks.value
        unserved = (f"claims cannot be served: {problem}",) if problem else ()
        return (*watchdog.overdue(), *unserved, *silent)

    async def ready(self) -> tuple[str, ...]:
        """What this instance lacks to do all of its work.

        An instance that waits for the owner of the node lacks nothing if it could serve in its
        place: the owner ends only once the new one is ready.
        """
        missing = [*await self.live(), *disk.stalls()]
        if self.life.value in {Life.WAITS, Life.TAKES_OVER}:
            return (*missing, *self.lacks())
        registration, publisher = self.registration.value, self.publisher.value
        if not registration.registered:
            missing.append(f"not registered with the kubelet {registration.error}".strip())
        if not self.board.value.is_read:
            missing += self.board.value.gaps
        if not publisher.published:
            missing.append(f"no pool was accepted by the API server {publisher.problem}".strip())
        return tuple(missing)
