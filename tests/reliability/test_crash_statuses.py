"""The daemon dies at every system call between a prepare and the end of what follows it."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dev.rig.agent import Agent
from dev.rig.looking import SERVER, changed
from dev.rig.parts import Rig
from dev.rig.waiting import HANG_SECONDS, until
from tests.reliability.crashes import Scene, prepare, whole_npus
from tests.reliability.deaths import Reaper
from tests.reliability.matrix import die_once, good_run, kinds
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.lab.simulator import create_board

NEW = "resourceclaims/new"


@pytest.fixture(scope="module")
def scene(simulator: Path) -> Iterator[Scene]:
    """A node whose slice is published, with a claim that is prepared."""
    with TemporaryDirectory(prefix="npu-") as name:
        folder = Path(name)
        board = create_board(changed(SERVER, 2), folder / "host", prebuilt=simulator)
        yield good_run(whole_npus(Rig(folder, board)), others=()).scene


def said(scene: Scene) -> set[str]:
    """UIDs of the claims whose status says what their NPUs are."""
    claims = scene.api.all(ResourceClaim)
    return {claim.metadata.uid or "" for claim in claims if claim.status.devices}


async def report(scene: Scene, agent: Agent, reaper: Reaper) -> None:
    """A call of the kubelet, and the status that follows it."""
    await prepare(scene, agent, reaper)
    await until(lambda: len(said(scene)) == 2 and reaper.points.all_answered)


async def go_on(scene: Scene) -> int:
    """Let the next daemon look at the new claim; returns how often it writes its status."""
    reads, writes = scene.api.asked("get", NEW), scene.api.asked("patch", NEW)
    with trio.fail_after(HANG_SECONDS):
        async with scene.rig.served_api(), scene.rig.daemon():
            await until(lambda: len(said(scene)) == 2 and scene.api.asked("get", NEW) > reads)
            await wait_all_tasks_blocked(0.05)
    return scene.api.asked("patch", NEW) - writes


async def test_a_death_before_the_status_of_a_claim_is_written(scene: Scene) -> None:
    """The next daemon writes it, which no kubelet asks for anything, unless it finds it there."""
    tried: set[str] = set()

    def spares(point: str) -> bool:
        is_tried = point in tried or not ("status" in point and "new" in point.lower())
        tried.update(() if is_tried else (point,))
        return is_tried

    before = -1
    while len(tried) > before:
        before = len(tried)
        with TemporaryDirectory(prefix="npu-") as folder:
            node = scene.like(Path(folder))
            await die_once(node, report, spares)
            is_written = node.new.uid in said(node)
            assert await go_on(node) == (not is_written)
    assert kinds(frozenset(tried)) >= {"receive", "send"}
