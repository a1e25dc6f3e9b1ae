"""A disk that stalls: calls about claims wait for it, and nothing else does."""

import os
import signal
import socket
import threading
from contextlib import suppress
from functools import partial

import pytest
import trio
import trio.testing

from dev.rig.agent import running_agent
from dev.rig.notified import Call, Calls
from dev.rig.parts import Rig
from dev.rig.waiting import until
from tests.observe.browser import get
from tests.reliability.points import SYSTEM_CALLS, Points
from trio_npu_dra.agent.control.client import ask_all
from trio_npu_dra.kit.api.objects import ResourceSlice
from trio_npu_dra.kit.base import disk
from trio_npu_dra.kit.grpc import RpcError
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import (
    Claim,
    NodePrepareResourceResponse,
)
from trio_npu_dra.lab.simulator import Severity
from trio_npu_dra.lab.standins.kubelet import Kubelet, open_kubelet

QUICKLY = {
    "trio_npu_dra.kit.base.disk.STALL_SECONDS": 0.1,
    "trio_npu_dra.agent.observe.self_check.LOOK_SECONDS": 0.01,
    "trio_npu_dra.agent.daemon.nursery.GRACE_SECONDS": 0.1,
    "trio_npu_dra.agent.daemon.nursery.END_SECONDS": 1.0,
}

LOOKS = {"readlink": 0, "readlinkat": 1}
"""Calls that look at files of the host, and which argument has the path."""


class Stall:
    """Keeps a daemon waiting in each rename or look at a path with a word."""

    def __init__(self, rig: Rig) -> None:
        self.word = ""
        self.kept: list[Call] = []
        self._points = Points(rig.folder, [rig.folder], {})

    async def watch(self, calls: Calls) -> None:
        """Judge each call of the daemon, until cancelled."""
        listener = await calls.listen()
        while True:
            await trio.lowlevel.wait_readable(listener)
            call = calls.receive()
            if call is None:
                await trio.sleep(0.001)  # the end of the process is reported as a call that is none
            elif self.word and self._is_meant(call):
                self.kept.append(call)
            else:
                calls.allow(call)

    def _is_meant(self, call: Call) -> bool:
        if call.name in LOOKS:
            path = call.memory(call.arguments[LOOKS[call.name]], 4096)
            return self.word.encode() in path.partition(b"\0")[0]
        return call.name.startswith("rename") and self.word in self._points.name(call)


async def prepare(kubelet: Kubelet, claim: Claim, into: list[NodePrepareResourceResponse]) -> None:
    """Have a claim prepared, which takes its time."""
    with suppress(RpcError):  # the end of the daemon
        into.append((await kubelet.prepare([claim]))[claim.uid])


@pytest.mark.parametrize("place", ["/claims/", "cdi/"])
@pytest.mark.parametrize("comes_back", [True, False])
async def test_probes_health_taints_and_a_stop_go_on(
    rig: Rig, place: str, *, comes_back: bool
) -> None:
    """The prepare that waits is answered once the disk is back; else the stop cuts it off."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        rig.http_port = reserved.getsockname()[1]
    calls, stall = Calls(SYSTEM_CALLS), Stall(rig)
    answers: list[NodePrepareResourceResponse] = []
    async with (
        trio.open_nursery() as nursery,
        running_agent(rig, calls=calls.filter, constants=QUICKLY) as agent,
    ):
        nursery.start_soon(stall.watch, calls)
        await agent.listening(rig.registration)
        async with open_kubelet(rig.registration) as kubelet:
            await rig.published()
            await until_page(rig, "/readyz", 200)
            stall.word = place
            nursery.start_soon(prepare, kubelet, rig.claim("a", "npu-0"), answers)
            await until(lambda: bool(stall.kept))

            assert "the node's disk has not answered for" in await until_page(rig, "/readyz", 503)
            assert await get(rig.http_port, "/healthz") == (200, "ok\n")
            asked = partial(ask_all, rig.settings.plugin_directory, "GET", "/health")
            assert [reply.status for reply in await trio.to_thread.run_sync(asked)] == [200]
            with rig.board.control() as control:
                control.set_health(1, Severity.CRITICAL)
            await until(partial(has_taint, rig))
            assert not answers

            if comes_back:
                stall.word = ""
                for call in stall.kept:
                    calls.allow(call)
                await until(lambda: bool(answers))
                assert answers[0].error == ""
            os.kill(agent.pid, signal.SIGTERM)
            assert await agent.ended() == (0 if comes_back else 1), agent.log.read_text()
        assert ("the stop is cut off" in agent.log.read_text()) is not comes_back
        nursery.cancel_scope.cancel()
    calls.close()


async def test_a_file_of_the_host_keeps_only_calls_about_claims_waiting(rig: Rig) -> None:
    """Also one that is repeated, as after a restart of the kubelet; it is answered afterwards."""
    calls, stall = Calls((*SYSTEM_CALLS, *LOOKS)), Stall(rig)
    answers: list[NodePrepareResourceResponse] = []
    repairing = {"trio_npu_dra.agent.claims.repair._INTERVAL": 0.1}
    async with (
        trio.open_nursery() as nursery,
        running_agent(rig, calls=calls.filter, constants=QUICKLY | repairing) as agent,
    ):
        nursery.start_soon(stall.watch, calls)
        await agent.listening(rig.registration)
        async with open_kubelet(rig.registration) as kubelet:
            await rig.published()
            claim = rig.claim("a", "npu-0")
            await prepare(kubelet, claim, answers)
            stall.word = "/host/usr"
            (rig.board.root / "usr/changed").touch()
            nursery.start_soon(prepare, kubelet, claim, answers)
            await until(lambda: bool(stall.kept))  # the repair's, or that of the prepare
            assert agent.pid not in {call.thread for call in stall.kept}

            stall.word = ""
            for call in stall.kept:
                calls.allow(call)
            await until(lambda: len(answers) == 2)
            assert [answer.error for answer in answers] == ["", ""]
        nursery.cancel_scope.cancel()
    calls.close()


async def test_calls_that_wait_leave_threads_to_others() -> None:
    """Such as to look up the API server's address."""
    disk.use_threads()
    back = threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(disk.run, back.wait)
        await trio.testing.wait_all_tasks_blocked()
        others = trio.to_thread.current_default_thread_limiter()
        taken = others.borrowed_tokens
        back.set()
    assert taken == 0


def has_taint(rig: Rig) -> bool:
    """Whether a device has one."""
    return any(device.taints for device in rig.api.all(ResourceSlice)[0].spec.devices or ())


async def until_page(rig: Rig, page: str, status: int) -> str:
    """Wait until a page has this status; its body."""
    while True:
        now, body = await get(rig.http_port, page)
        if now == status:
            return body
        await trio.sleep(0.01)
