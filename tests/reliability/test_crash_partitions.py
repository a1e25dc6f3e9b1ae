"""The daemon dies at every system call that matters while it cuts NPUs and joins them again.

Afterwards each partition is of a claim, no claim is without its partition, and vNPUs created
manually stay. test_crash_matrix.py tries what a death leaves of half a file, of sockets and of
calls.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from dev.rig.parts import Rig
from tests.reliability.crashes import Scene, prepare, start, unprepare, unprepare_without_chip
from tests.reliability.matrix import LIMIT_SECONDS, Seen, die_everywhere, die_once, good_node, kinds

LOCK = "remove plugins/npu.huawei.com/steps/davinci0.lock"
QUARTERS = [f"npu-0-vir05-1c-8g-{number}" for number in range(4)]


@pytest.fixture(scope="module")
def seen(simulator: Path) -> Iterator[Seen]:
    """A run in which nothing dies; two claims have a partition of one NPU, a third may get one."""

    def scene(rig: Rig) -> Scene:
        kept = rig.claim("kept", QUARTERS[0])
        new = rig.claim("new", QUARTERS[1], "npu-0-vir10-3c-16g-0")
        return Scene(rig, kept, new, simulator=simulator)

    others = ("npu-1-vir05-1c-8g-0",)
    with good_node(simulator, 2, scene, others=others, partitioning="dynamic") as seen:
        yield seen


async def test_a_death_in_a_prepare(seen: Seen) -> None:
    """Between its record, each of its two partitions, and its CDI file."""
    points = await die_everywhere(seen, seen.scene, prepare, at=_counts)
    assert kinds(points) == {"mknod", "rename"}
    assert len([point for point in points if point.startswith("mknod")]) == 2


async def test_a_death_in_an_unprepare(seen: Seen) -> None:
    """Between CDI file, partition and record."""
    points = await die_everywhere(seen, seen.scene, unprepare, at=_counts)
    assert any(point.startswith("remove host/dev/vdavinci") for point in points)


async def test_a_death_in_an_unprepare_while_the_chip_is_away(seen: Seen) -> None:
    """The next daemon finds the chip with its partition, and removes that."""
    points = await die_everywhere(seen, seen.scene, unprepare_without_chip, at=_counts)
    assert any("vnpu-" in point for point in points)
    assert not any(point.startswith("remove host/dev/vdavinci") for point in points)


async def test_a_death_in_the_start_that_removes_what_was_left(seen: Seen, folder: Path) -> None:
    """The chip is back, and its partition is nobody's."""
    scene = seen.scene.like(folder)
    await die_once(scene, unprepare_without_chip, lambda _: True)
    assert len(scene.vnpus) == 1
    points = await die_everywhere(seen, scene, start, at=_counts)
    assert any(point.startswith("remove host/dev/vdavinci") for point in points)


async def test_a_death_in_the_start_that_finishes(seen: Seen, folder: Path) -> None:
    """A claim of which one partition is cut and the other is not."""
    scene = seen.scene.like(folder)
    cut: list[str] = []

    def spares(point: str) -> bool:
        cut.extend([point] if point.startswith("mknod") else [])
        return len(cut) < 2

    with trio.fail_after(LIMIT_SECONDS):
        await die_once(scene, prepare, spares)
    assert len(scene.vnpus) == 2
    points = await die_everywhere(seen, scene, start, at=_counts)
    assert kinds(points) == {"mknod", "rename"}


def _counts(point: str) -> bool:
    """Whether a death leaves there what none leaves elsewhere; one of the left locks is enough."""
    kind, name, *_ = point.split()
    is_seen = name.endswith((".sock", ".lock")) and point != LOCK
    return kind in {"mknod", "remove", "rename"} and not is_seen
