"""A plugin and a kubelet, each with its own loop, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import Bridge, RpcError, Status, methods, open_bridge
from trio_npu_dra.kit.grpc._generated.grpc.health.v1 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthCheckResponseServingStatus,
)
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.kit.grpc._generated.pluginregistration import RegistrationStatus as Notification
from trio_npu_dra.kit.kubelet.device_health import DeviceHealth, Devices
from trio_npu_dra.kit.kubelet.driver import ClaimRef, PreparedDevice, PrepareResult
from trio_npu_dra.kit.kubelet.plugin import serve_plugin, serve_registration
from trio_npu_dra.kit.kubelet.probes import Probes, serve_probes, silent_sockets
from trio_npu_dra.kit.kubelet.registration import NOT_REGISTERED, RegistrationStatus
from trio_npu_dra.lab.standins.kubelet import (
    KUBELET_1_33,
    KUBELET_1_36,
    KUBELET_1_37,
    Health,
    KubeletVersion,
    open_kubelet,
)

T = TypeVar("T")

DRIVER = "npu.example.com"
CLAIM = v1.Claim(namespace="default", uid="uid-1", name="train")
GOOD = DeviceHealth(pool="node-a", device="npu-0", state=HealthState.HEALTHY)
UNHEALTHY = DeviceHealth(pool="node-a", device="npu-0", state=HealthState.UNHEALTHY, message="hot")
SERVING = HealthCheckResponseServingStatus.SERVING
NOT_SERVING = HealthCheckResponseServingStatus.NOT_SERVING


class OneNpu:
    """A driver that gives npu-0 to every claim, or has a bug."""

    def __init__(self) -> None:
        self.bug: Exception | None = None

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Give npu-0."""
        await trio.lowlevel.checkpoint()
        if self.bug:
            raise self.bug
        npu = PreparedDevice(
            requests=("npu",),
            pool="node-a",
            device="npu-0",
            cdi_device_ids=("example.com/npu=npu-0",),
        )
        return {claim.uid: PrepareResult(devices=(npu,)) for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Release it."""
        await trio.lowlevel.checkpoint()
        return dict.fromkeys((claim.uid for claim in claims), "")


@dataclass(slots=True, kw_only=True)
class Plugin:
    """A running plugin; cancelling a scope stops one of its sockets."""

    bridge: Bridge
    driver: OneNpu
    health: Observable[Devices]
    status: Observable[RegistrationStatus]
    service: Path
    registration: Path
    stop_service: trio.CancelScope
    stop_registration: trio.CancelScope

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve the service socket."""
        with self.stop_service:
            await serve_plugin(
                self.bridge,
                self.driver,
                self.health,
                socket=self.service,
                grace_seconds=1,
                task_status=task_status,
            )

    async def register(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve the registration socket."""
        with self.stop_registration:
            await serve_registration(
                self.bridge,
                DRIVER,
                self.status,
                socket=self.registration,
                endpoint=self.service,
                task_status=task_status,
            )


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Plugin]:
    """A plugin whose two sockets listen."""
    with trio.fail_after(20):
        async with open_bridge() as bridge, trio.open_nursery() as nursery:
            plugin = Plugin(
                bridge=bridge,
                driver=OneNpu(),
                health=Observable((GOOD,)),
                status=Observable(NOT_REGISTERED),
                service=folder / DRIVER / "dra.sock",
                registration=folder / f"{DRIVER}-reg.sock",
                stop_service=trio.CancelScope(),
                stop_registration=trio.CancelScope(),
            )
            await nursery.start(plugin.serve)
            await nursery.start(plugin.register)
            yield plugin
            nursery.cancel_scope.cancel()


async def once(observable: Observable[T], condition: Callable[[T], bool]) -> None:
    """Wait for a value that meets *condition*."""

    async def look() -> None:
        async for value in observable.changes():
            if condition(value):
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)


def says(state: HealthState, message: str, devices: Health) -> bool:
    """Whether the kubelet's state of npu-0 is *state*."""
    entry = devices.get(("node-a", "npu-0"))
    return entry is not None and entry.health.name == state.name and entry.message == message


@pytest.mark.parametrize(
    ("version", "service"),
    [
        (KUBELET_1_33, "v1beta1.DRAPlugin"),
        (KUBELET_1_36, "v1.DRAPlugin"),
        (KUBELET_1_37, "v1.DRAPlugin"),
    ],
    ids=["1.33", "1.36", "1.37"],
)
async def test_each_kubelet_finds_a_service_it_knows(
    tmp_path: Path, version: KubeletVersion, service: str
) -> None:
    """Kubelets of each age register the plugin, prepare and unprepare a claim."""
    async with (
        running(tmp_path) as plugin,
        open_kubelet(plugin.registration, version=version) as kubelet,
    ):
        assert (kubelet.info.name, kubelet.service) == (DRIVER, service)
        assert plugin.status.value == RegistrationStatus(registered=True)
        answer = await kubelet.prepare([CLAIM])
        assert answer["uid-1"].devices[0].cdi_device_ids == ["example.com/npu=npu-0"]
        assert await kubelet.unprepare([CLAIM]) == {"uid-1": ""}


@pytest.mark.parametrize("version", [KUBELET_1_36, KUBELET_1_37], ids=["1.36", "1.37"])
async def test_health_reaches_the_kubelet_as_it_changes(
    tmp_path: Path, version: KubeletVersion
) -> None:
    """Both versions of the stream send the list at once, and each change when it happens."""
    async with (
        running(tmp_path) as plugin,
        open_kubelet(plugin.registration, version=version) as kubelet,
    ):
        await once(kubelet.health, partial(says, HealthState.HEALTHY, ""))
        plugin.health.set((UNHEALTHY,))
        await once(kubelet.health, partial(says, HealthState.UNHEALTHY, "hot"))


async def test_a_refusal_is_an_error_that_readiness_can_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet's reason is logged as an error and kept."""
    async with running(tmp_path) as plugin, plugin.bridge.dial(plugin.registration) as channel:
        await channel.unary(
            methods.NOTIFY_REGISTRATION,
            Notification(plugin_registered=False, error="endpoint already registered"),
            timeout_seconds=5,
        )
        assert plugin.status.value == RegistrationStatus(
            registered=False, error="endpoint already registered"
        )
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_a_bug_in_the_driver_fails_its_call_and_no_other(tmp_path: Path) -> None:
    """A prepare that raises is INTERNAL for the kubelet; the next one works."""
    async with running(tmp_path) as plugin, open_kubelet(plugin.registration) as kubelet:
        plugin.driver.bug = ValueError("off by one")
        with pytest.raises(RpcError, match="off by one") as caught:
            await kubelet.prepare([CLAIM])
        plugin.driver.bug = None
        assert (await kubelet.prepare([CLAIM]))["uid-1"].error == ""
    assert caught.value.status is Status.INTERNAL


async def test_a_stopped_registration_leaves_the_service_running(tmp_path: Path) -> None:
    """The registration socket is removed first; the kubelet's connection still works then."""
    async with running(tmp_path) as plugin, open_kubelet(plugin.registration) as kubelet:
        plugin.stop_registration.cancel()
        await once(plugin.status, lambda status: not status.registered)
        assert not await trio.Path(plugin.registration).exists()
        assert await kubelet.unprepare([CLAIM]) == {"uid-1": ""}


Check = Callable[[HealthCheckRequest], Awaitable[HealthCheckResponse]]


@asynccontextmanager
async def probed(plugin: Plugin) -> AsyncIterator[Check]:
    """What a probe calls."""

    async def live() -> tuple[str, ...]:
        return await silent_sockets(
            plugin.bridge, service=plugin.service, registration=plugin.registration
        )

    async def ready() -> tuple[str, ...]:
        return () if plugin.status.value.registered else ("not registered",)

    async with trio.open_nursery() as nursery:
        port: int = await nursery.start(
            serve_probes, plugin.bridge, 0, Probes(live=live, ready=ready)
        )
        async with plugin.bridge.dial(("127.0.0.1", port)) as channel:
            yield partial(channel.unary, methods.CHECK_HEALTH, timeout_seconds=5)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def hanging_up(path: Path, socket: Path, *, times: int) -> AsyncIterator[None]:
    """Forward *path* to *socket*, but close the first connections at once."""
    left = times

    async def copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
        async for data in source:
            await target.send_all(data)

    async def serve(client: trio.SocketStream) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            return
        async with await trio.open_unix_socket(str(socket)) as server, trio.open_nursery() as both:
            both.start_soon(copy, server, client)
            await copy(client, server)
            both.cancel_scope.cancel()

    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(str(path))
    listener.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(listener)])
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("times", "silent"), [(1, 0), (2, 1)])
async def test_a_probe_whose_connection_made_room_for_another_connects_again(
    folder: Path, times: int, silent: int
) -> None:
    """It connects again only once: a socket that keeps hanging up counts as silent."""
    path = folder / "front.sock"
    async with running(folder) as plugin, hanging_up(path, plugin.service, times=times):
        found = await silent_sockets(plugin.bridge, service=path, registration=plugin.registration)
    assert len(found) == silent


@pytest.mark.parametrize("socket", ["service", "registration"])
async def test_a_probe_tells_whether_both_sockets_answer(tmp_path: Path, socket: str) -> None:
    """SERVING while both are there, NOT_SERVING once one is gone, NOT_FOUND for other services."""
    async with running(tmp_path) as plugin, probed(plugin) as check:
        assert (await check(HealthCheckRequest())).status == SERVING
        assert (await check(HealthCheckRequest(service="liveness"))).status == SERVING
        with pytest.raises(RpcError, match="NOT_FOUND"):
            await check(HealthCheckRequest(service="nobody"))
        stop = plugin.stop_service if socket == "service" else plugin.stop_registration
        stop.cancel()
        while getattr(plugin, socket).exists():  # noqa: ASYNC110 - a file
            await trio.sleep(0.001)
        assert (await check(HealthCheckRequest())).status == NOT_SERVING


async def test_a_probe_tells_readiness_apart(tmp_path: Path) -> None:
    """Alive is not ready: `readiness` is the answer of its own probe."""
    ready = HealthCheckRequest(service="readiness")
    async with running(tmp_path) as plugin, probed(plugin) as check:
        assert (await check(ready)).status == NOT_SERVING
        assert (await check(HealthCheckRequest())).status == SERVING
        async with open_kubelet(plugin.registration):
            assert (await check(ready)).status == SERVING


async def test_a_missing_plugins_directory_is_named(tmp_path: Path) -> None:
    """Without the kubelet's plugins directory the plugin says which one it misses."""
    async with open_bridge() as bridge:
        with pytest.raises(ConfigError, match=r"none/npu\.example\.com does not exist"):
            await serve_plugin(
                bridge,
                OneNpu(),
                Observable(()),
                socket=tmp_path / "none" / DRIVER / "dra.sock",
                grace_seconds=1,
            )
