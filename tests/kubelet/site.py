"""A node with the driver, behind real sockets and a line that can be cut."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from tests.claims.node import AT_ONCE, DRIVER, POOL, FakeClaims, NodeOnDisk, board
from tests.kubelet.line import Line
from trio_npu_dra.agent.claims.planner import ClaimPlanner
from trio_npu_dra.agent.claims.service import NodeClaims
from trio_npu_dra.agent.handout.cdi import CdiFolder, Libraries
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.offers import NO_PARTITIONS
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.base.device_metadata import metadata_files
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import Service, listen_unix, serve
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.kit.kubelet import device_health, dra_plugin, registration
from trio_npu_dra.kit.kubelet.device_health import DeviceHealth, DeviceHealths
from trio_npu_dra.kit.kubelet.endpoints import Endpoints
from trio_npu_dra.kit.kubelet.plugin import serve_kubelet
from trio_npu_dra.kit.kubelet.registration import NOT_REGISTERED, RegistrationStatus
from trio_npu_dra.lab.standins.kubelet import Kubelet

LIMIT_SECONDS = 20
HEALTHY = DeviceHealth(pool=POOL, device="npu-2", state=HealthState.HEALTHY)
CLAIM_A = v1.Claim(namespace="default", uid="uid-a", name="a")
CLAIM_B = v1.Claim(namespace="default", uid="uid-b", name="b")
A_PREPARED = {"uid-a": [f"{DRIVER}/npu=uid-a-npu-2"]}


class SlowClaims(FakeClaims):
    """An API server that answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.let = trio.Event()
        self.asked_event = trio.Event()

    async def get(
        self,
        kind: type[ResourceClaim],
        name: str,
        namespace: str | None = None,
        *,
        is_cached: bool = False,
    ) -> ResourceClaim:
        """Read one claim, once the test allows it."""
        self.asked_event.set()
        await self.let.wait()
        return await super().get(kind, name, namespace, is_cached=is_cached)


@dataclass(kw_only=True)
class Site:
    """A node with one driver, behind a line that can be cut.

    Attributes:
        node: The node.
        driver: The driver's name.
        line: The line between kubelet and driver.
        registration: The socket at which the kubelet finds the driver.
        health: What the health stream tells.
        status: The kubelet's decision about the registration.
        stop_service: Closes the service socket.
        stop_registration: Closes the registration socket.
    """

    node: NodeOnDisk
    nursery: trio.Nursery
    driver: str = DRIVER
    health: Observable[DeviceHealths] = field(default_factory=lambda: Observable((HEALTHY,)))
    status: Observable[RegistrationStatus] = field(
        default_factory=lambda: Observable(NOT_REGISTERED)
    )
    stop_service: trio.CancelScope = field(default_factory=trio.CancelScope)
    stop_registration: trio.CancelScope = field(default_factory=trio.CancelScope)

    def __post_init__(self) -> None:
        folder = self.node.root / "s"
        folder.mkdir(exist_ok=True)
        self.endpoints = Endpoints(
            driver_name=self.driver,
            plugin_directory=folder / self.driver,
            registrar_directory=folder,
        )
        self.service, self.registration = self.endpoints.service, self.endpoints.registration
        self.line = Line(folder / f"{self.driver}-line.sock", self.service)

    def claims(self) -> NodeClaims:
        """An instance of the driver with a state folder of its own."""
        state = self.service.parent
        planner = ClaimPlanner(
            reader=self.node.source,
            board=Observable(board()),
            host=self.node.host,
            ledger=Ledger(state, boot_id_file=self.node.boot_id_file),
            cdi=CdiFolder(
                root=self.node.cdi_root,
                driver_name=self.driver,
                host=self.node.host,
                libraries=Libraries(path=""),
                metadata=metadata_files(state, self.driver),
            ),
            driver_name=self.driver,
            pool_name=POOL,
            partitioning=Observable(NO_PARTITIONS),
        )
        return NodeClaims(planner, patience=AT_ONCE)

    def serve(self) -> None:
        """Listen for calls."""
        self.service.parent.mkdir(exist_ok=True)
        services = [*dra_plugin.routes(self.claims()), *device_health.routes(self.health)]
        self._answer(self.service, services, self.stop_service)

    async def connect(self) -> None:
        """Start the line to the driver, and let the kubelet find it."""
        await self.nursery.start(self.line.serve)
        self.register(self.line.path)

    def register(self, endpoint: Path) -> None:
        """Let the kubelet find the driver behind a socket."""
        services = registration.routes(self.driver, endpoint, self.status)
        self._answer(self.registration, services, self.stop_registration)

    def _answer(self, socket: Path, services: Sequence[Service], stop: trio.CancelScope) -> None:
        listener = listen_unix(socket)

        async def run() -> None:
            with stop:
                await serve(listener, services, grace_seconds=1)

        self.nursery.start_soon(run)

    async def be_plugin(
        self,
        stop: trio.Event,
        *,
        grace_seconds: float = 1,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Both sockets in their order, until *stop* is set; without the line."""
        await serve_kubelet(
            self.claims(),
            self.health,
            self.status,
            endpoints=self.endpoints,
            stop=stop,
            grace_seconds=grace_seconds,
            task_status=task_status,
        )

    def files(self) -> tuple[set[str], set[str]]:
        """UIDs with a record, and with a CDI file of this driver."""
        prefix = f"{self.driver}-npu_"
        records = (self.service.parent / "claims").glob("*.json")
        cdi = self.node.cdi_root.glob(f"{prefix}*.json")
        return {path.stem for path in records}, {path.stem.removeprefix(prefix) for path in cdi}


@asynccontextmanager
async def around(node: NodeOnDisk) -> AsyncIterator[partial[Site]]:
    """Makes sites on *node*, all within one time limit."""
    with trio.fail_after(LIMIT_SECONDS):
        async with trio.open_nursery() as nursery:
            yield partial(Site, node=node, nursery=nursery)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def running(node: NodeOnDisk) -> AsyncIterator[Site]:
    """A driver that can be called."""
    async with around(node) as make:
        site = make()
        site.serve()
        await site.connect()
        yield site


async def prepared(kubelet: Kubelet, *claims: v1.Claim) -> dict[str, list[str]]:
    """CDI names by claim; fails on any error."""
    answer = await kubelet.prepare(claims)
    assert {uid: entry.error for uid, entry in answer.items() if entry.error} == {}
    return {
        uid: [name for device in entry.devices for name in device.cdi_device_ids]
        for uid, entry in answer.items()
    }
