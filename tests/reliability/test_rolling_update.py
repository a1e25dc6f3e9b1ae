"""Two instances of two versions on one node: the older and the one that is to replace it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dev.rig.agent import Agent, running_agent
from dev.rig.parts import Rig
from dev.rig.waiting import until
from tests.observe.browser import get
from trio_npu_dra.agent.control.client import ask_all
from trio_npu_dra.kit.api.objects import ResourceSlice
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from trio_npu_dra.lab.standins.kubelet import Kubelet, open_kubelet

OLD, NEW = "uid-old", "uid-new"


@asynccontextmanager
async def older(rig: Rig) -> AsyncIterator[Agent]:
    """The older version, which has published: it knows no NUMA nodes."""
    bare = rig.folder / "bare"
    bare.mkdir()
    async with running_agent(rig, pod_uid=OLD, sysfs_root=bare) as agent:
        await agent.listening(registration(rig, OLD))
        async with open_kubelet(registration(rig, OLD)):  # without whom it waits before it does
            await rig.published()
        yield agent


@asynccontextmanager
async def younger(rig: Rig) -> AsyncIterator[Agent]:
    """The newer version, which waits beside the older: it knows the NUMA nodes."""
    async with running_agent(rig, pod_uid=NEW) as agent:
        await agent.listening(rig.endpoints(NEW).control)
        await until(lambda: "waiting for the instance" in agent.log.read_text())
        yield agent


def registration(rig: Rig, uid: str) -> Path:
    """The registration socket of an instance."""
    return rig.endpoints(uid).registration


def sockets(rig: Rig, uid: str) -> list[bool]:
    """Which of an instance's two sockets exist."""
    service = rig.endpoints(uid).service
    return [service.exists(), registration(rig, uid).exists()]


def knows_numa_nodes(rig: Rig) -> bool:
    """Whether the younger one's facts are published."""
    devices = rig.api.all(ResourceSlice)[0].spec.devices or ()
    return all("numaNode" in (device.attributes or {}) for device in devices)


def writes(rig: Rig) -> int:
    """How many slices were written."""
    return sum(rig.api.asked(verb, "resourceslices") for verb in ("create", "update", "delete"))


def prepared(rig: Rig) -> tuple[int, int]:
    """How many CDI files and records there are."""
    return len(rig.cdi_files), len(rig.records)


async def test_the_next_owner_goes_on_where_the_other_stopped(rig: Rig) -> None:
    """Whoever the kubelet knows at a moment answers each call, and none fails."""
    held, moved = rig.claim("held", "npu-0"), rig.claim("moved", "npu-1")
    refused, late = rig.claim("refused", "npu-0"), rig.claim("late", "npu-1")
    async with older(rig) as old, younger(rig):
        async with open_kubelet(registration(rig, OLD)) as kubelet:
            answer = (await kubelet.prepare([held, moved]))[held.uid]
            os.kill(old.pid, signal.SIGTERM)
            await until(registration(rig, NEW).exists)
            # The kubelet does not know the younger one yet.
            assert await kubelet.unprepare([moved]) == {moved.uid: ""}
        async with open_kubelet(registration(rig, NEW)) as kubelet:
            assert (await kubelet.prepare([held]))[held.uid] == answer
            assert "npu-0 is held" in (await kubelet.prepare([refused]))[refused.uid].error
            assert (await kubelet.prepare([late]))[late.uid].error == ""
            assert await old.ended() == 0
            assert (sockets(rig, OLD), sockets(rig, NEW)) == ([False, False], [True, True])
            assert await kubelet.unprepare([held, late]) == {held.uid: "", late.uid: ""}
    assert prepared(rig) == (0, 0)


async def test_calls_wait_for_the_owners_last_call(rig: Rig) -> None:
    """The younger one reads the records when they do not change any more."""
    slow, quick = rig.claim("slow", "npu-0"), rig.claim("quick", "npu-0")
    answers: dict[str, str] = {}

    async def prepare(kubelet: Kubelet, claim: Claim) -> None:
        answers[claim.name] = (await kubelet.prepare([claim]))[claim.uid].error

    async with (
        older(rig) as old,
        younger(rig),
        open_kubelet(registration(rig, OLD)) as first,
        trio.open_nursery() as calls,
    ):
        rig.api.fail_next(10_000, status=503, verb="get")
        asked = rig.api.asked("get", "resourceclaims")
        calls.start_soon(prepare, first, slow)
        await until(lambda: rig.api.asked("get", "resourceclaims") > asked)
        os.kill(old.pid, signal.SIGTERM)
        await until(registration(rig, NEW).exists)
        async with open_kubelet(registration(rig, NEW)) as second:
            calls.start_soon(prepare, second, quick)
            await until(lambda: not registration(rig, OLD).exists())
            assert not answers
            rig.api.heal()
            await until(lambda: len(answers) == 2)
    assert answers["slow"] == ""
    assert "npu-0 is held" in answers["quick"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_the_younger_publishes_when_the_older_has_ended(
    rig: Rig, end: signal.Signals
) -> None:
    """Not before, and in one write, however the older one ended; nor does it have sockets."""
    async with older(rig) as old, younger(rig):
        assert (writes(rig), knows_numa_nodes(rig)) == (1, False)
        assert sockets(rig, NEW) == [False, False]

        os.kill(old.pid, end)
        await until(registration(rig, NEW).exists)
        async with open_kubelet(registration(rig, NEW)):
            await old.ended()
            await until(lambda: knows_numa_nodes(rig))
            assert writes(rig) == 2
            await until(lambda: sockets(rig, OLD) == [False, False])
            assert sockets(rig, NEW) == [True, True]


async def test_a_younger_one_that_fails_leaves_no_trace(rig: Rig) -> None:
    """The older one serves and publishes as before."""
    async with older(rig):
        async with younger(rig) as failing:
            failing.process.kill()
            await failing.killed()
        assert (writes(rig), knows_numa_nodes(rig)) == (1, False)
        assert sockets(rig, OLD) == [True, True]
        assert sockets(rig, NEW) == [False, False]
        async with open_kubelet(registration(rig, OLD)) as kubelet:
            claim = rig.claim("a", "npu-0")
            assert (await kubelet.prepare([claim]))[claim.uid].error == ""


async def test_a_younger_one_is_ready_once_it_could_serve(rig: Rig) -> None:
    """It has looked at library, chips and API server; before that a restart of the owner is first.

    Its word for people is that it waits.
    """
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    async with older(rig) as old:
        rig.api.fail_next(10_000, status=503, verb="create")
        async with running_agent(rig, pod_uid=NEW, http_port=port) as new:
            await new.listening(rig.endpoints(NEW).control)
            await until(lambda: "waiting for the instance" in new.log.read_text())
            assert (await get(port, "/healthz"))[0] == 200
            while await get(port, "/readyz") != (503, "the API server has not answered yet\n"):  # noqa: ASYNC110 - a page
                await trio.sleep(0.05)
            os.kill(old.pid, signal.SIGKILL)
            await old.killed()
            async with running_agent(rig, pod_uid=OLD) as again:
                await again.listening(registration(rig, OLD))
                assert sockets(rig, NEW) == [False, False]
                rig.api.heal()
                await until_ready(port)
                answers = await trio.to_thread.run_sync(
                    ask_all, rig.settings.plugin_directory, "GET", "/health"
                )
                assert sorted(json.loads(one.text)["waits"] for one in answers) == [False, True]
                assert "npu_dra_pool_waiting 1.0" in (await get(port, "/metrics"))[1]


async def until_ready(port: int) -> None:
    """Wait until the instance with that port is ready."""
    while (await get(port, "/readyz"))[0] != 200:  # noqa: ASYNC110 - a page
        await trio.sleep(0.05)


async def test_a_thread_that_hangs_in_the_library_does_not_keep_the_node(rig: Rig) -> None:
    """The owner frees its locks by itself, while its process waits for the thread."""
    async with older(rig) as old, younger(rig) as new:
        with rig.board.control() as control:
            control.hang(device=3)
            os.kill(old.pid, signal.SIGTERM)
            await until(lambda: "serving in place of" in new.log.read_text())
            control.release(device=3)
            async with open_kubelet(registration(rig, NEW)) as kubelet:
                claim = rig.claim("a", "npu-0")
                assert (await kubelet.prepare([claim]))[claim.uid].error == ""
        await old.ended()


async def test_a_hung_owner_keeps_the_node(rig: Rig) -> None:
    """Nobody can tell whether it writes; the kubelet kills it, and the younger one goes on."""
    async with older(rig) as old, younger(rig):
        os.kill(old.pid, signal.SIGSTOP)
        os.kill(old.pid, signal.SIGTERM)
        await wait_all_tasks_blocked(0.5)
        assert sockets(rig, NEW) == [False, False]
        os.kill(old.pid, signal.SIGKILL)
        await until(registration(rig, NEW).exists)
