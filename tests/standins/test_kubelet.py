"""The stand-in refuses the same things as the kubelet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_npu_dra.kit.grpc import listen_unix, methods, serve
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.kit.grpc._generated.pluginregistration import (
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from trio_npu_dra.lab.standins.kubelet import ContractBroken, open_kubelet


class BarePlugin:
    """A plugin with one socket for everything, and scripted answers."""

    def __init__(self, info: PluginInfo, answered: Iterable[str] = ()) -> None:
        self.info = info
        self.answered = list(answered)
        self.notified: list[RegistrationStatus] = []

    async def get_info(self, _: InfoRequest) -> PluginInfo:
        """Return the plugin's info."""
        await trio.lowlevel.checkpoint()
        return self.info

    async def notify(self, status: RegistrationStatus) -> RegistrationStatusResponse:
        """Remember the kubelet's decision."""
        await trio.lowlevel.checkpoint()
        self.notified.append(status)
        return RegistrationStatusResponse()

    async def prepare(self, _: v1.NodePrepareResourcesRequest) -> v1.NodePrepareResourcesResponse:
        """Answer for the scripted UIDs."""
        await trio.lowlevel.checkpoint()
        return v1.NodePrepareResourcesResponse(
            claims={uid: v1.NodePrepareResourceResponse() for uid in self.answered}
        )


@asynccontextmanager
async def serving(plugin: BarePlugin, path: Path) -> AsyncIterator[None]:
    """The plugin behind *path*."""
    routes = [
        methods.GET_INFO.handled_by(plugin.get_info),
        methods.NOTIFY_REGISTRATION_STATUS.handled_by(plugin.notify),
        methods.NODE_PREPARE_RESOURCES_V1.handled_by(plugin.prepare),
    ]
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, listen_unix(path), routes)
            yield
            nursery.cancel_scope.cancel()


def named(name: str = "npu.example.com", *versions: str) -> PluginInfo:
    """A PluginInfo without an endpoint: the registration socket serves all."""
    return PluginInfo(type="DRAPlugin", name=name, supported_versions=list(versions))


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (named("npu.example.com", "v9.DRAPlugin"), "v9"),
        (named("", "v1.DRAPlugin"), "not a named"),
        (PluginInfo(type="CSIPlugin", name="a", supported_versions=["v1.DRAPlugin"]), "CSI"),
    ],
    ids=["unknown version", "no name", "other type"],
)
async def test_an_unfit_plugin_is_told_why_it_is_refused(
    tmp_path: Path, info: PluginInfo, reason: str
) -> None:
    """The plugin hears the reason in NotifyRegistrationStatus, the caller as an error."""
    plugin, socket = BarePlugin(info), tmp_path / "reg.sock"
    async with serving(plugin, socket):
        with pytest.raises(ContractBroken, match=reason):
            async with open_kubelet(socket):
                pass
    assert [status.plugin_registered for status in plugin.notified] == [False]
    assert reason in plugin.notified[0].error


@pytest.mark.parametrize("answered", [[], ["uid-1", "uid-2"], ["uid-2"]])
async def test_an_answer_for_other_claims_is_refused(tmp_path: Path, answered: list[str]) -> None:
    """One claim too few or too many invalidates the whole answer."""
    plugin, socket = BarePlugin(named("a", "v1.DRAPlugin"), answered), tmp_path / "reg.sock"
    claim = v1.Claim(namespace="default", uid="uid-1", name="train")
    async with serving(plugin, socket), open_kubelet(socket) as kubelet:
        with pytest.raises(ContractBroken, match="uid-"):
            await kubelet.prepare([claim])


async def test_it_waits_for_the_socket_to_appear(tmp_path: Path) -> None:
    """A kubelet that starts before the plugin registers it when it appears."""
    plugin, socket = BarePlugin(named("late.example.com", "v1.DRAPlugin")), tmp_path / "reg.sock"
    found, names = trio.Event(), list[str]()

    async def watch() -> None:
        async with open_kubelet(socket) as kubelet:
            names.append(kubelet.info.name)
        found.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await wait_all_tasks_blocked()
        async with serving(plugin, socket):
            await found.wait()
    assert names == ["late.example.com"]
