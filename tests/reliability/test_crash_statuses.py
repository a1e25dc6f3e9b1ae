"""The daemon dies at every system call between a prepare and the end of what follows it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dev.rig.agent import Agent
from dev.rig.looking import SERVER, changed
from dev.rig.parts import Rig
from dev.rig.waiting import until
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


def is_noted(scene: Scene) -> bool:
    """Whether the daemon has finished with the status of both claims."""
    files = {f"plugins/npu.huawei.com/statuses/{uid}.json" for uid in scene.names}
    return files <= scene.files


async def report(scene: Scene, agent: Agent, reaper: Reaper) -> None:
    """A call of the kubelet, and the status that follows it."""
    await prepare(scene, agent, reaper)
    await until(lambda: is_noted(scene))


async def test_a_death_before_the_status_of_a_claim_is_written(scene: Scene) -> None:
    """The next daemon writes it, which no kubelet asks for anything; once more at most."""
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
            writes = node.api.asked("patch", NEW)
            async with node.rig.served_api(), node.rig.daemon():
                await until(partial(is_noted, node))
            statuses = [claim.status.devices for claim in node.api.all(ResourceClaim)]
            assert [one.device for devices in statuses for one in devices] == ["npu-0", "npu-1"]
            again = node.api.asked("patch", NEW) - writes
            assert again <= (len(tried) > before)
    assert kinds(frozenset(tried)) >= {"open", "receive", "rename", "send", "write"}
