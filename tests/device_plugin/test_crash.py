"""The daemon dies at every system call of an allocation, and at each of taking chips back.

As in tests/reliability no list has the calls. One node has all deaths: each daemon puts right what
the one before it left, and dies at the next point. What a death leaves of half a file and in a
start is tried there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dev.rig.parts import Rig
from dev.rig.waiting import until
from tests.device_plugin.instance import RESOURCE, ids
from tests.device_plugin.whole_daemon import allocated, pool
from tests.reliability.deaths import Reaper, mortal_agent
from tests.reliability.matrix import END, kinds
from tests.reliability.points import Points
from trio_npu_dra.kit.grpc import RpcError
from trio_npu_dra.lab.standins.device_manager import DeviceManager

SECONDS = 0.05
QUICK = dict.fromkeys(
    (
        "trio_npu_dra.kit.kubelet.device_plugin.registration.LOOK_SECONDS",
        "trio_npu_dra.agent.device_plugin.pods.LOOK_SECONDS",
        "trio_npu_dra.agent.device_plugin.pods.SOON_SECONDS",
    ),
    SECONDS,
)
"""Looks follow each other faster than on a node."""

Act = Callable[[Rig, DeviceManager, Reaper], Awaitable[None]]
"""Has a daemon do something to its end; tells the reaper when that begins."""


async def allocation(rig: Rig, manager: DeviceManager, reaper: Reaper) -> None:
    """A pod gets two chips: it is listed once the kubelet has the answer."""
    del rig
    reaper.begin()
    await allocated(manager, "train", 0, 1)


async def end_of_a_pod(rig: Rig, manager: DeviceManager, reaper: Reaper) -> None:
    """The chips of a pod that is not listed any more are taken back."""
    await allocated(manager, "train", 0, 1)
    await until(lambda: all("train" in path.read_text() for path in rig.records))
    reaper.begin()
    manager.pods.clear()
    await until(lambda: not rig.records or bool(reaper.died_at))


async def die_everywhere(rig: Rig, manager: DeviceManager, act: Act) -> set[str]:
    """Die in *act* at each point; the points.

    None of them is about what daemons do besides: a first one has published the slice, which
    without a kubelet comes two seconds after the start, and chips are looked at only once.
    """
    async with rig.registered():
        await until(lambda: len(pool(rig)) == 6)
        await manager.wait_for(RESOURCE, *ids(0, 1))
    await manager.wait_for(RESOURCE)
    rig.health_poll_interval = 60.0
    tried: set[str] = set()
    while END not in tried:
        tried.add(await die(rig, manager, act, tried))
        if END in tried:
            break
        manager.pods.clear()  # the kubelet got no answer
    return tried - {END}


async def die(rig: Rig, manager: DeviceManager, act: Act, tried: set[str]) -> str:
    """Start a daemon, which puts right what is left, and kill it in *act*; the new point."""
    folders = [rig.folder / name for name in ("cdi", "plugins", "device-plugins")]
    reaper = Reaper(Points(rig.folder, folders, {}), lambda point: point in tried or is_half(point))
    async with mortal_agent(rig, reaper, constants=QUICK) as agent:
        await until(lambda: not rig.records)
        await manager.wait_for(RESOURCE, *ids(0, 1))
        try:
            await act(rig, manager, reaper)
        except RpcError:
            assert reaper.died_at
        reaper.kill(agent, END)
        await agent.killed()
        await manager.wait_for(RESOURCE)  # the kubelet has noticed
    return reaper.died_at


def is_half(point: str) -> bool:
    """Whether a death there leaves half a file, or a mark in the lock file."""
    return point.split(maxsplit=1)[0] in {"open", "write", "chmod"}


async def test_a_death_in_an_allocation(rig: Rig) -> None:
    """The kubelet fails the pod, and the chips are free; its answers are on the disk."""
    rig.device_plugin = "0-1"
    async with rig.device_manager() as manager:
        points = await die_everywhere(rig, manager, allocation)
        assert kinds(frozenset(points)) == {"rename", "send"}
        assert {path.stem for path in rig.records} == {"pod-of-npu-0", "pod-of-npu-1"}


async def test_a_death_while_chips_are_taken_back(rig: Rig) -> None:
    """The next daemon does the rest."""
    rig.device_plugin = "0-1"
    async with rig.device_manager() as manager:
        points = await die_everywhere(rig, manager, end_of_a_pod)
        assert kinds(frozenset(points)) == {"remove"}
