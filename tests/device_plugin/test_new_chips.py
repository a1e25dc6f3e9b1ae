"""Chips and files that come and go while resources are served, without a daemon."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import NodeOnDisk, board
from tests.device_plugin.instance import RESOURCE, Instance, Kubelet, given, ids
from trio_npu_dra.agent.device_plugin.node_plugins import NodePlugins
from trio_npu_dra.agent.device_plugin.pods import LOOK_SECONDS, PodList
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.device_plugin.plugin import DevicePlugin


async def serve_plugin(plugin: DevicePlugin) -> None:
    """Serve nothing."""
    del plugin
    await trio.sleep_forever()


def plugins_of(instance: Instance, node: NodeOnDisk, kubelet: Kubelet) -> NodePlugins:
    """The node's device plugins, which are for all chips; not served yet."""
    return NodePlugins(
        selection=Selection.parse("all"),
        board=node.board,
        ledger=instance.ledger,
        cdi=node.cdi(),
        is_busy=kubelet.is_busy,
        flags=instance.step,
        pods=PodList(read=kubelet.read),
        serve_plugin=serve_plugin,
        leaving=Observable({}),
        devices=Observable({}),
        waiting=Observable({}),
        pods_known=Observable(False),
        containers=Observable({}),
    )


async def test_a_new_chip_is_given_out_once_no_pod_and_no_process_has_it(
    node: NodeOnDisk,
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The list of pods is read before, and the process is named once."""
    del autojump_clock
    node.board.set(board(1))
    kubelet = Kubelet()
    instance = Instance(node, kubelet)
    assert await instance.held() == {}
    plugins = plugins_of(instance, node, kubelet)
    devices = plugins.devices
    nursery.start_soon(plugins.serve)
    await trio.sleep(LOOK_SECONDS / 2)
    assert [one.id for one in devices.value[RESOURCE]] == ids(0)

    kubelet.devices, kubelet.busy = given("train", 1), {"/dev/davinci2"}
    node.board.set(board(3))
    await trio.sleep(LOOK_SECONDS / 3)  # before the list is read by itself
    assert await instance.held() == {"npu-1": "ml/train"}
    assert [one.id for one in devices.value[RESOURCE]] == ids(0, 1)
    (line,) = caplog.records
    assert vars(line)["npu"] == "npu-2"
    kubelet.busy.clear()
    await trio.sleep(LOOK_SECONDS / 3)
    assert [one.id for one in devices.value[RESOURCE]] == ids(0, 1, 2)
    nursery.cancel_scope.cancel()


async def test_no_device_is_healthy_while_the_host_lacks_what_containers_need(
    node: NodeOnDisk, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """So pods wait; the kubelet would refuse them for good."""
    del autojump_clock
    kubelet = Kubelet()
    instance = Instance(node, kubelet)
    assert await instance.held() == {}
    plugins = plugins_of(instance, node, kubelet)
    nursery.start_soon(plugins.serve)
    place, away = node.root / "dev/hisi_hdc", node.root / "away"

    async def healthy() -> set[bool]:
        await trio.sleep(LOOK_SECONDS / 3)
        return {one.is_healthy for one in plugins.devices.value[RESOURCE]}

    assert await healthy() == {True}
    place.rename(away)
    assert await healthy() == {False}
    away.rename(place)
    assert await healthy() == {True}
    nursery.cancel_scope.cancel()
