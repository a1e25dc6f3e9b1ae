"""Two instances of two versions on one node: the older and the one that is to replace it."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dev.rig.agent import Agent, running_agent
from dev.rig.parts import Rig
from dev.rig.waiting import until
from trio_npu_dra.kit.api.objects import ResourceSlice
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
    """The newer version, beside the older: it knows the NUMA nodes."""
    async with running_agent(rig, pod_uid=NEW) as agent:
        await agent.listening(registration(rig, NEW))
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


async def test_either_instance_goes_on_where_the_other_stopped(rig: Rig) -> None:
    """The kubelet may call both, in any order, about one claim."""
    async with (
        older(rig),
        younger(rig),
        open_kubelet(registration(rig, OLD)) as old,
        open_kubelet(registration(rig, NEW)) as new,
    ):
        first, second = rig.claim("a", "npu-0"), rig.claim("b", "npu-0")
        await assert_prepared(old, new, rig)
        answers = [(await each.prepare([first]))[first.uid] for each in (new, old)]
        assert answers[0] == answers[1]
        assert [answer.error for answer in answers] == ["", ""]
        refused = (await old.prepare([second]))[second.uid].error
        assert "device npu-0 is held by claim default/a" in refused
        assert await old.unprepare([first]) == {first.uid: ""}
        assert (await new.prepare([second]))[second.uid].error == ""
        assert await old.unprepare([second]) == {second.uid: ""}
    assert rig.cdi_files == rig.records == []


async def assert_prepared(old: Kubelet, new: Kubelet, rig: Rig) -> None:
    """Prepared by the one, unprepared by the other, in turn, as calls of many pods come."""
    claims = [rig.claim(f"many-{number}", f"npu-{number}") for number in range(8)]
    for there, back in ((old, new), (new, old)):
        for claim in claims:
            assert (await there.prepare([claim]))[claim.uid].error == ""
        for claim in claims:
            assert await back.unprepare([claim]) == {claim.uid: ""}


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_the_younger_publishes_when_the_older_has_ended(
    rig: Rig, end: signal.Signals
) -> None:
    """Not before, and in one write, however the older one ended."""
    async with older(rig) as old, younger(rig), open_kubelet(registration(rig, NEW)) as kubelet:
        claim = rig.claim("a", "npu-0")
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
        assert (writes(rig), knows_numa_nodes(rig)) == (1, False)

        os.kill(old.pid, end)
        await old.ended()
        await until(lambda: knows_numa_nodes(rig))

        assert writes(rig) == 2
        assert sockets(rig, NEW) == [True, True]
        # In order it removes its own; a killed one's are removed by the next look of another.
        assert sockets(rig, OLD) == [end == signal.SIGKILL] * 2
        assert await kubelet.unprepare([claim]) == {claim.uid: ""}


async def test_a_younger_one_that_fails_leaves_no_trace(rig: Rig) -> None:
    """The older one serves and publishes as before; the next start removes dead sockets."""
    async with older(rig):
        async with younger(rig) as failing:
            failing.process.kill()
            await failing.killed()
        assert (writes(rig), knows_numa_nodes(rig)) == (1, False)
        assert sockets(rig, OLD) == [True, True]
        assert sockets(rig, NEW) == [True, True]

        async with running_agent(rig, pod_uid="uid-newest"):
            await until(lambda: sockets(rig, NEW) == [False, False])
        assert sockets(rig, OLD) == [True, True]
        async with open_kubelet(registration(rig, OLD)) as kubelet:
            claim = rig.claim("a", "npu-0")
            assert (await kubelet.prepare([claim]))[claim.uid].error == ""
