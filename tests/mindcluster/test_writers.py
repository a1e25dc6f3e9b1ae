"""Node and ConfigMap at an API server: what is written, and when."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dev.rig.waiting import HANG_SECONDS, until
from tests.holds.entries import hold
from tests.mindcluster.chips import RESOURCE, b4
from trio_npu_dra.agent.device_plugin.device import DevicesByResource, ResourceDevice
from trio_npu_dra.agent.holds.hold import Hold
from trio_npu_dra.agent.mindcluster import writers
from trio_npu_dra.agent.mindcluster.device_info import content
from trio_npu_dra.agent.mindcluster.writers import (
    FRESH_SECONDS,
    MANAGER,
    follow_mindcluster,
    keep_device_info,
)
from trio_npu_dra.kit.api.applied import ConfigMap
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.objects import Node, ObjectMeta
from trio_npu_dra.kit.base.errors import KubeError, Unavailable
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState

NODE = "node-a"
TOLD = content({RESOURCE: (b4(0),)}, used=())


@pytest.fixture
def state() -> ApiState:
    """An API server with a Node that people have labelled."""
    state = ApiState()
    labels = {"kubernetes.io/os": "linux", "servertype": "mine"}
    state.add(Node(metadata=ObjectMeta(name=NODE, labels=labels)))
    return state


@pytest.fixture
async def client(
    state: ApiState, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[KubeClient]:
    """A client of it."""
    socket = tmp_path / "api.sock"
    await nursery.start(serve_api, state, socket)
    credentials = Credentials(source="test", base_url="http://localhost", unix_socket=socket)
    async with open_client(credentials) as opened:
        yield opened


def labels(state: ApiState) -> dict[str, str]:
    """Those of the Node."""
    (node,) = state.all(Node)
    return node.metadata.labels or {}


async def test_a_node_without_chips_is_left_alone(
    state: ApiState, client: KubeClient, nursery: trio.Nursery
) -> None:
    """No ConfigMap, and no write to the Node."""
    holds: Observable[tuple[Hold, ...]] = Observable(())
    devices: Observable[DevicesByResource] = Observable({})
    nursery.start_soon(follow_mindcluster, client, devices, holds, NODE)
    with trio.fail_after(HANG_SECONDS):
        await until(lambda: state.asked("get", "nodes") == 1)
        await wait_all_tasks_blocked(0.01)
    assert state.asked("patch") == 0
    nursery.cancel_scope.cancel()


async def test_only_whole_chips_are_told_until_the_last_has_gone(
    state: ApiState, client: KubeClient, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares are not Volcano's; a chip that an observer holds is free."""
    monkeypatch.setattr(writers, "PAUSE_SECONDS", 0.01)
    whole = [ResourceDevice(resource=RESOURCE, chip=b4(number)) for number in range(3)]
    holds: Observable[tuple[Hold, ...]] = Observable((hold("a", 0), hold("b", 1, observer=True)))
    parts = (*whole[:2], replace(whole[2], share=0))
    devices: Observable[DevicesByResource] = Observable({RESOURCE: parts})

    def told() -> list[Any]:
        data = [json.loads((one.data or {})["DeviceInfoCfg"]) for one in state.all(ConfigMap)]
        return [one["DeviceInfo"]["DeviceList"].get(RESOURCE) for one in data]

    nursery.start_soon(follow_mindcluster, client, devices, holds, NODE)
    with trio.fail_after(HANG_SECONDS):
        await until(lambda: told() == ["Ascend910-1"])
        devices.set({})
        await until(lambda: told() == [None])
    nursery.cancel_scope.cancel()


async def test_the_node_is_labelled_but_for_what_people_set(
    state: ApiState, client: KubeClient, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look finds an edit; the kind of server is left as people set it."""
    monkeypatch.setattr(writers, "LOOK_SECONDS", 0.01)
    holds: Observable[tuple[Hold, ...]] = Observable(())
    devices: Observable[DevicesByResource] = Observable(
        {RESOURCE: (ResourceDevice(resource=RESOURCE, chip=b4(0)),)}
    )
    nursery.start_soon(follow_mindcluster, client, devices, holds, NODE)
    for _ in range(2):
        with trio.fail_after(HANG_SECONDS):
            await until(lambda: labels(state).get("accelerator") == "huawei-Ascend910")
        assert labels(state)["servertype"] == "mine"
        (node,) = state.all(Node)
        edited = {**(node.metadata.labels or {}), "accelerator": "x"}
        state.put(node.with_metadata(node.metadata.model_copy(update={"labels": edited})))
    nursery.cancel_scope.cancel()


class Server:
    """Takes ConfigMaps; notes when, and what time they say."""

    def __init__(self) -> None:
        self.written: list[tuple[float, int]] = []
        self.asked = 0
        self.error: KubeError | None = None

    async def apply(self, obj: ConfigMap, *, manager: str) -> None:
        """Store it."""
        await trio.lowlevel.checkpoint()
        assert manager == MANAGER
        self.asked += 1
        if self.error:
            raise self.error
        info = json.loads((obj.data or {})["DeviceInfoCfg"])
        self.written.append((trio.current_time(), info["DeviceInfo"]["UpdateTime"]))


async def test_the_config_map_is_fresh_and_written_seldom(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """An equal one every five minutes; changes at most once a second, each with a later time."""
    server = Server()
    told: Observable[Mapping[str, Any] | None] = Observable(TOLD)
    keep = partial(
        keep_device_info,
        server,  # type: ignore[arg-type]
        told,
        node_name=NODE,
        clock=lambda: 1000.0,  # a wall clock that stands still
    )
    nursery.start_soon(keep)
    del autojump_clock
    caplog.set_level("INFO")
    await trio.sleep(3 * FRESH_SECONDS + 1)
    began = server.written[0][0]
    assert [at - began for at, _ in server.written] == [n * FRESH_SECONDS for n in range(4)]
    assert FRESH_SECONDS < 300  # readers expect one every five minutes

    for number in range(10):
        told.set({**TOLD, "SuperPodID": number})
        await trio.sleep(0.2)
    await trio.sleep(2)
    times = [at for at, _ in server.written]
    assert 5 <= len(times) <= 7
    assert all(after - before >= 1 for before, after in pairwise(times))
    told_times = [said for _, said in server.written]
    assert told_times == sorted(set(told_times))
    assert told_times[0] == 1000

    server.error = Unavailable("away")
    told.set(TOLD)
    asked = server.asked
    await trio.sleep(100)
    assert server.asked < asked + 15  # less and less often
    server.error = None
    count = len(server.written)
    await trio.sleep(70)
    assert len(server.written) == count + 1
    assert caplog.records[-1].levelname == "INFO"  # it works again
    nursery.cancel_scope.cancel()
