"""A device plugin and a kubelet's device manager, each with its own loop, over real sockets."""

from __future__ import annotations

import socket
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio

from dev.rig.waiting import HANG_SECONDS, until
from trio_npu_dra.kit.base.errors import AllocationRefused, KubeletSilent
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import RpcError
from trio_npu_dra.kit.kubelet.device_plugin import registration
from trio_npu_dra.kit.kubelet.device_plugin.plugin import Choice, Devices, PluginDevice
from trio_npu_dra.kit.kubelet.device_plugin.pod_resources import PodDevice, list_pod_resources
from trio_npu_dra.kit.kubelet.device_plugin.registration import serve_resource
from trio_npu_dra.kit.kubelet.endpoints import device_plugin_socket
from trio_npu_dra.lab.standins.device_manager import DeviceManager, open_device_manager

RESOURCE = "example.com/thing"


def thing(number: int, *, healthy: bool = True, numa: int | None = None) -> PluginDevice:
    """A device."""
    return PluginDevice(id=f"thing-{number}", healthy=healthy, numa_node=numa)


@dataclass
class Things:
    """Devices that are given to any pod."""

    resource: str = RESOURCE
    devices: Observable[Devices] = field(default_factory=lambda: Observable((thing(0), thing(1))))
    refusal: str = ""

    async def prefer(self, choice: Choice) -> Sequence[str]:
        """The last ones."""
        await trio.lowlevel.checkpoint()
        return [*choice.needed, *choice.available[len(choice.needed) - choice.size :]]

    async def allocate(self, containers: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Give them."""
        await trio.lowlevel.checkpoint()
        if self.refusal:
            raise AllocationRefused(self.refusal)
        return [[f"example.com/device={id_}" for id_ in ids] for ids in containers]


@dataclass(frozen=True)
class Site:
    """The kubelet's folders."""

    root: Path

    @property
    def plugins(self) -> Path:
        """That of device plugins."""
        return self.root / "device-plugins"

    @property
    def pods(self) -> Path:
        """That of pod resources."""
        return self.root / "pod-resources"

    @property
    def ours(self) -> Path:
        """The plugin's socket."""
        return device_plugin_socket(self.plugins, "npu.example.com", RESOURCE)

    @asynccontextmanager
    async def kubelet(self) -> AsyncIterator[DeviceManager]:
        """A kubelet, until it is killed."""
        with trio.fail_after(HANG_SECONDS):
            async with open_device_manager(self.plugins, self.pods) as manager:
                yield manager

    @asynccontextmanager
    async def serving(self, things: Things) -> AsyncIterator[None]:
        """The plugin, until it is killed."""
        with trio.fail_after(HANG_SECONDS):
            async with trio.open_nursery() as nursery:
                serve = partial(serve_resource, folder=self.plugins, driver_name="npu.example.com")
                nursery.start_soon(serve, things)
                yield
                nursery.cancel_scope.cancel()


@pytest.fixture
def site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The kubelet's folders; the plugin looks at them more often than on a node."""
    monkeypatch.setattr(registration, "LOOK_SECONDS", 0.02)
    site = Site(folder)
    site.plugins.mkdir()
    site.pods.mkdir()
    return site


async def test_the_kubelet_gets_lists_choices_and_devices(site: Site) -> None:
    """Registration, complete lists with NUMA nodes on every change, preference and allocation."""
    things = Things(devices=Observable((thing(0, numa=1), thing(1))))
    async with site.kubelet() as kubelet, site.serving(things):
        await kubelet.wait_for(RESOURCE, "thing-0", "thing-1")
        listed = kubelet.resources.value[RESOURCE].devices
        near = listed["thing-0"].topology
        assert near is not None
        assert [node.id for node in near.nodes] == [1]
        assert listed["thing-1"].topology is None
        (request,) = kubelet.registrations
        assert (request.version, request.endpoint) == ("v1beta1", site.ours.name)
        assert request.options is not None
        assert not request.options.pre_start_required
        assert request.options.get_preferred_allocation_available
        assert stat.S_IMODE(site.ours.stat().st_mode) == 0o600

        things.devices.set((thing(0), thing(1, healthy=False), thing(2)))
        await kubelet.wait_for(RESOURCE, "thing-0", "thing-2")
        ids = ["thing-0", "thing-1", "thing-2"]
        assert await kubelet.preferred(RESOURCE, 2, available=ids, needed=["thing-0"]) == [
            "thing-0",
            "thing-2",
        ]
        assert await kubelet.allocate(RESOURCE, ids[:2], ids[2:]) == [
            ["example.com/device=thing-0", "example.com/device=thing-1"],
            ["example.com/device=thing-2"],
        ]


async def test_a_refusal_tells_the_pod_why(site: Site) -> None:
    """The kubelet gets the message; the plugin goes on."""
    things = Things(refusal="the chip is held by claim ml/train \udc80")
    async with site.kubelet() as kubelet, site.serving(things):
        await kubelet.wait_for(RESOURCE, "thing-0", "thing-1")
        with pytest.raises(RpcError, match="held by claim ml/train \\?"):
            await kubelet.allocate(RESOURCE, ["thing-0"])
        things.refusal = ""
        assert await kubelet.allocate(RESOURCE, ["thing-0"]) == [["example.com/device=thing-0"]]


async def test_the_plugin_registers_with_each_kubelet_that_starts(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the first kubelet, after it was killed, and when it was away for a while."""
    async with site.serving(Things()):
        for _ in range(2):
            async with site.kubelet() as kubelet:
                await kubelet.wait_for(RESOURCE, "thing-0", "thing-1")
                caplog.clear()
        await until(lambda: "is not registered" in caplog.text)  # it has tried in vain
        async with site.kubelet() as kubelet:
            await kubelet.wait_for(RESOURCE, "thing-0", "thing-1")
            assert len(kubelet.registrations) == 1


async def test_a_plugin_that_is_started_again_takes_its_place(site: Site) -> None:
    """Also where a killed one left its socket behind."""
    async with site.kubelet() as kubelet:
        async with site.serving(Things()):
            await kubelet.wait_for(RESOURCE, "thing-0", "thing-1")
        await kubelet.wait_for(RESOURCE)
        assert not site.ours.exists()
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(site.ours))
        async with site.serving(Things(devices=Observable((thing(7),)))):
            await kubelet.wait_for(RESOURCE, "thing-7")


async def test_a_plugin_that_the_kubelet_drops_registers_again(site: Site) -> None:
    """The kubelet closes the newest client of a resource when the stream of an older one ends."""
    async with site.kubelet() as kubelet, site.serving(Things()):
        await kubelet.wait_for(RESOURCE, "thing-0", "thing-1")
        kubelet.disconnect(RESOURCE)
        await kubelet.wait_for(RESOURCE)
        await kubelet.wait_for(RESOURCE, "thing-0", "thing-1")
        assert len(kubelet.registrations) == 2


async def test_a_removed_socket_is_replaced(site: Site) -> None:
    """The kubelet would not find it at its next call."""
    async with site.kubelet() as kubelet, site.serving(Things()):
        await kubelet.wait_for(RESOURCE, "thing-0", "thing-1")
        site.ours.unlink()
        while len(kubelet.registrations) < 2:
            await kubelet.wait_for(RESOURCE)
            await kubelet.wait_for(RESOURCE, "thing-0", "thing-1")
        assert site.ours.is_socket()


async def test_a_refused_registration_is_tried_again_and_said_once(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """A name that is no extended resource, or a folder that is missing."""

    def problems() -> list[str]:
        return [vars(record)["problem"] for record in caplog.records if "problem" in vars(record)]

    elsewhere = site.root / "elsewhere"
    async with site.kubelet() as kubelet:
        async with site.serving(Things(resource="kubernetes.io/thing")):
            await until(lambda: len(kubelet.refused) > 2)
        assert kubelet.registrations == []
        site.plugins.rename(elsewhere)
        async with site.serving(Things()):
            await until(lambda: len(problems()) > 1)
            elsewhere.rename(site.plugins)
            await kubelet.wait_for(RESOURCE, "thing-0", "thing-1")
    refused, missing = problems()
    assert "is no extended resource" in refused
    assert "does not exist" in missing


async def test_pods_are_listed_with_what_they_have(site: Site) -> None:
    """Each device once. Pods without devices too: they show that the list is whole."""
    async with site.kubelet() as kubelet:
        kubelet.pods = {
            ("ml", "train"): {
                RESOURCE: ["thing-0", "thing-1", "thing-0"],
                "example.com/nic": ["a"],
            },
            ("ml", "idle"): {},
        }
        listed = await list_pod_resources(site.pods / "kubelet.sock")
    assert listed.pods == {("ml", "train"), ("ml", "idle")}
    assert listed.devices == tuple(
        PodDevice(namespace="ml", pod="train", container="main", resource=resource, id=id_)
        for resource, id_ in [
            (RESOURCE, "thing-0"),
            (RESOURCE, "thing-1"),
            ("example.com/nic", "a"),
        ]
    )


async def test_a_kubelet_that_is_away_lists_nothing(site: Site) -> None:
    """It is an error, not an empty list."""
    with pytest.raises(KubeletSilent, match="does not list pods"):
        await list_pod_resources(site.pods / "kubelet.sock")


def test_a_long_name_gets_a_socket_all_the_same(tmp_path: Path) -> None:
    """Two resources never share a socket."""
    paths = {device_plugin_socket(tmp_path, "d" * 63, f"example.com/{'r' * 60}{n}") for n in "ab"}
    assert len(paths) == 2
    assert all(len(path.name) < 40 for path in paths)
