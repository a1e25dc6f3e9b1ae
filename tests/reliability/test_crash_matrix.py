"""The daemon dies at every system call that matters, and the next one goes on.

Nobody lists the calls: a daemon that does something is killed at the first point at which none has
died before, on a node of its own, until one comes to the end. The next daemon runs in this process.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio

from tests.reliability.crashes import (
    Scene,
    nothing_yet,
    outdated,
    prepare,
    start,
    stop,
    unprepare,
    whole_npus,
)
from tests.reliability.matrix import (
    Seen,
    die_everywhere,
    die_once,
    good_node,
    kinds,
    points_of,
)


@pytest.fixture(scope="module")
def seen(simulator: Path) -> Iterator[Seen]:
    """A run in which nothing dies."""
    with good_node(simulator, 3, whole_npus) as seen:
        yield seen


@pytest.fixture(scope="module")
def killed(seen: Seen) -> Iterator[Scene]:
    """Dead sockets, a claim without a CDI file, half of that file, and slices that are outdated."""
    with TemporaryDirectory(prefix="npu-") as folder:
        scene = seen.scene.like(Path(folder))
        trio.run(die_once, scene, prepare, lambda point: not point.startswith("rename cdi/"))
        outdated(scene)
        yield scene


async def test_a_death_in_a_start_after_another_death(seen: Seen, killed: Scene) -> None:
    """It repairs, listens, registers and publishes."""
    points = await die_everywhere(seen, killed, start)
    assert kinds(points) >= {"bind", "open", "receive", "remove", "rename", "send"}


async def test_a_death_in_a_first_start(seen: Seen, killed: Scene, folder: Path) -> None:
    """Nothing is there yet; apart from what other starts do too, which is tried above."""
    scene = seen.scene.like(folder)
    nothing_yet(scene)
    points = await die_everywhere(seen, scene, start, but=await points_of(killed, start))
    assert kinds(points) >= {"mkdir", "open", "receive", "send"}


async def test_a_death_in_a_prepare(seen: Seen) -> None:
    """The call fails, and the claim is prepared or is not."""
    points = await die_everywhere(seen, seen.scene, prepare)
    assert kinds(points) >= {"open", "rename", "send", "write"}


async def test_a_death_in_an_unprepare(seen: Seen) -> None:
    """The call fails, and the claim is prepared or is not."""
    points = await die_everywhere(seen, seen.scene, unprepare)
    assert kinds(points) >= {"remove", "send"}


async def test_a_death_in_a_stop(seen: Seen) -> None:
    """Apart from what it does for the call in flight, which is tried above."""
    calls = await points_of(seen.scene, prepare)
    points = await die_everywhere(seen, seen.scene, stop, but=calls)
    assert kinds(points) >= {"remove"}
