"""The daemon dies at every step there is, and the next one goes on: nothing lost, nothing left.

Each case has a node of its own, on one board. It kills a daemon that is a process of its own, then
starts one in this process.
"""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree

import pytest
import trio

from tests.agent import running_agent
from tests.reliability.crashes import (
    CRASHES,
    Crash,
    DeadlyApi,
    Scene,
    sockets,
    unfinished_files,
)
from tests.rig import NODE, Rig
from tests.waiting import until
from trio_npu_dra._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from trio_npu_dra.crashpoints import Point
from trio_npu_dra.kube.objects import Device, Node, ObjectMeta, ResourceSlice
from trio_npu_dra.simulator import create_board, load_profile
from trio_npu_dra.standins.kubelet import open_kubelet

LIMIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def seen(simulator: Path, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """What every case begins with: a slice published, a claim prepared, an orderly stop."""
    folder = tmp_path_factory.mktemp("seen")
    board = create_board(load_profile("910b4-8"), folder / "host", prebuilt=simulator)
    api = DeadlyApi()
    api.add(Node(metadata=ObjectMeta(name=NODE)))
    rig = Rig(folder, board, api)
    rig.lay_out()
    scene = Scene(rig, api, kept=rig.claim("kept", "npu-0"), new=rig.claim("new", "npu-1"))

    async def one_good_run() -> None:
        with trio.fail_after(LIMIT_SECONDS):
            async with rig.served_api(), rig.registered() as kubelet:
                await rig.published()
                await scene.prepare(kubelet, [scene.kept])

    trio.run(one_good_run)
    return scene


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.at.replace(" ", "-"))
async def test_a_death_at_any_step_is_made_good_by_the_next_start(
    crash: Crash, seen: Scene, folder: Path
) -> None:
    """No claim lost, no device twice, no file left over, no slice write too many."""
    scene = _like(seen, folder)
    devices = _published(scene)
    crash.before(scene)
    with trio.fail_after(LIMIT_SECONDS):
        async with scene.rig.served_api():
            await _die(crash, scene)
            scene.api.heal()
            scene.api.requests.clear()
            await _go_on(crash, scene)
    assert _published(scene) == devices
    assert _slice_writes(scene) == crash.then


def test_no_crash_point_is_left_out() -> None:
    """Who adds a point adds its case."""
    assert {crash.point for crash in CRASHES} - {None} == set(Point)


# --- one case ------------------------------------------------------------------------------------


def _like(seen: Scene, folder: Path) -> Scene:
    """The same node once more, as much as what outlives a process goes."""
    api = DeadlyApi(
        _objects=copy.deepcopy(seen.api._objects),
        _version=seen.api._version,
    )
    rig = Rig(folder, seen.rig.board, api)
    rig.lay_out()
    for name in ("plugins", "cdi"):
        copytree(seen.rig.folder / name, folder / name, dirs_exist_ok=True)
    return Scene(rig, api, kept=seen.kept, new=seen.new, answered={seen.kept.uid})


async def _die(crash: Crash, scene: Scene) -> None:
    """The first agent, to its end."""
    async with running_agent(scene.rig, crash_at=crash.at if crash.point else "") as agent:
        if not crash.point:
            scene.api.deadly, scene.api.victim = crash.at.split()[0], agent.pid
        await crash.act(scene, agent)
        log = agent.log.read_text().splitlines()
    if crash.point:
        assert "is going to kill itself" in log[0]
        assert "crash point reached" in log[-1]
    scene.api.deadly = ""
    assert _recorded(scene) == crash.records
    assert _cdi(scene) == crash.cdi
    assert len(unfinished_files(scene.rig.folder)) == crash.unfinished
    assert crash.sockets in {None, len(sockets(scene.rig.folder))}
    assert _slice_writes(scene) == crash.written


async def _go_on(crash: Crash, scene: Scene) -> None:
    """The next daemon: first it puts right what is left, then everything works."""
    rig = scene.rig
    async with rig.daemon():
        assert _recorded(scene) == _cdi(scene) == crash.records
        assert {scene.name(uid) for uid in scene.answered} <= crash.records
        assert unfinished_files(rig.folder) == []
        async with open_kubelet(rig.registration) as kubelet:
            await kubelet.health.wait_until(lambda health: len(health) == 8)
            everything = [scene.kept, scene.new, *_claims_for_the_rest(rig)]
            await scene.prepare(kubelet, everything)
            assert _uids(everything) == set(_files(scene)) == _recorded_uids(scene)
            assert sorted(_held(scene)) == [f"npu-{number}" for number in range(8)]
            # The list of the watch, and the one on which writes are planned.
            await until(lambda: scene.api.asked("list", "resourceslices") >= 2)
            await until(lambda: len(_slice_writes(scene)) >= len(crash.then))
            await scene.unprepare(kubelet, everything)
        assert _recorded(scene) == _cdi(scene) == set()
    assert sockets(rig.folder) == unfinished_files(rig.folder) == []


def _claims_for_the_rest(rig: Rig) -> list[Claim]:
    return [rig.claim(f"other-{number}", f"npu-{number}") for number in range(2, 8)]


# --- what is there -------------------------------------------------------------------------------


def _published(scene: Scene) -> tuple[Device, ...]:
    """The devices of the one slice."""
    (item,) = scene.api.all(ResourceSlice)
    return item.spec.devices or ()


def _slice_writes(scene: Scene) -> tuple[str, ...]:
    return tuple(
        request.verb
        for request in scene.api.requests
        if request.verb in {"create", "update", "delete"}
        and "/resourceslices" in request.path
        and "dryRun" not in request.query
    )


def _recorded(scene: Scene) -> set[str]:
    return {scene.name(uid) for uid in _recorded_uids(scene)}


def _recorded_uids(scene: Scene) -> set[str]:
    return {path.stem for path in scene.rig.records}


def _held(scene: Scene) -> list[str]:
    """Devices by all records; one that two claims hold is there twice."""
    return [
        device["device"]
        for path in scene.rig.records
        for device in json.loads(path.read_bytes())["devices"]
    ]


def _cdi(scene: Scene) -> set[str]:
    return {scene.name(uid) for uid in _files(scene)}


def _files(scene: Scene) -> dict[str, Path]:
    """CDI files by the UID in their name."""
    return {path.stem.rpartition("_")[2]: path for path in scene.rig.cdi_files}


def _uids(claims: Sequence[Claim]) -> set[str]:
    return {claim.uid for claim in claims}
