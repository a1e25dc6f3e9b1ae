"""The kubelet's device manager in this process does what the real one does.

`tests/e2e/test_device_plugin.py` shows the real one; its rules are those of
pkg/kubelet/cm/devicemanager.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from trio_npu_dra.kit.grpc import Route, RpcError, Send, listen_unix, methods, open_channel, serve
from trio_npu_dra.kit.grpc._generated import v1beta1
from trio_npu_dra.lab.standins.device_manager import open_device_manager

RESOURCE = "example.com/thing"


@pytest.fixture
def folders(folder: Path) -> tuple[Path, Path]:
    """Those of device plugins and of pod resources."""
    paths = folder / "p", folder / "r"
    for path in paths:
        path.mkdir()
    return paths


class BarePlugin:
    """A plugin with one device, whose stream ends on request."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.end = trio.Event()

    def routes(self) -> list[Route]:
        """What the kubelet asks."""

        async def options(_: v1beta1.Empty) -> v1beta1.DevicePluginOptions:
            return v1beta1.DevicePluginOptions()

        async def watch(_: v1beta1.Empty, send: Send[v1beta1.ListAndWatchResponse]) -> None:
            device = v1beta1.Device(id=self.id, health="Healthy")
            await send(v1beta1.ListAndWatchResponse(devices=[device]))
            await self.end.wait()

        return [
            methods.GET_DEVICE_PLUGIN_OPTIONS_V1BETA1.handled_by(options),
            methods.LIST_AND_WATCH_V1BETA1.handled_by(watch),
        ]


async def register(
    folder: Path, endpoint: str, *, version: str = "v1beta1", name: str = RESOURCE
) -> None:
    """Ask to be registered."""
    request = v1beta1.RegisterRequest(version=version, endpoint=endpoint, resource_name=name)
    async with open_channel(folder / "kubelet.sock") as channel:
        await channel.unary(methods.REGISTER_V1BETA1, request, timeout_seconds=5)


@pytest.mark.parametrize(
    ("version", "name", "why"),
    [
        ("v1alpha", RESOURCE, "version"),
        ("v1beta1", "thing", "no extended resource"),
        ("v1beta1", "node.kubernetes.io/thing", "no extended resource"),
    ],
)
async def test_what_the_kubelet_does_not_know_is_refused(
    folders: tuple[Path, Path], version: str, name: str, why: str
) -> None:
    """Another version of the API, or a name that is no extended resource."""
    with trio.fail_after(20):
        async with open_device_manager(*folders) as manager:
            with pytest.raises(RpcError, match=why):
                await register(folders[0], "x.sock", version=version, name=name)
            assert manager.registrations == []


async def test_the_end_of_an_older_plugin_ends_the_newer_one_too(
    folders: tuple[Path, Path],
) -> None:
    """Clients are kept by resource; the devices are unhealthy until a plugin registers again."""
    folder, _ = folders
    (folder / "checkpoint").touch()  # a start removes sockets only
    older, newer = BarePlugin("a"), BarePlugin("b")
    with trio.fail_after(20):
        async with (
            open_device_manager(*folders) as manager,
            trio.open_nursery() as nursery,
        ):
            for plugin in (older, newer):
                listener = listen_unix(folder / f"{plugin.id}.sock")
                nursery.start_soon(serve, listener, plugin.routes())
                await register(folder, f"{plugin.id}.sock")
                await manager.wait_for(RESOURCE, plugin.id)
            assert (folder / "checkpoint").exists()
            older.end.set()
            await manager.wait_for(RESOURCE)
            assert not manager.resources.value[RESOURCE].connected
            await register(folder, "b.sock")
            await manager.wait_for(RESOURCE, "b")
            nursery.cancel_scope.cancel()
