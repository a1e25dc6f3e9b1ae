"""The daemon dies at every system call of claims that have shares of NPUs.

Those that claims of whole NPUs have as well are tried in test_crash_matrix.py, and so is what a
death leaves of half a file in the folders that they have too, and of sockets.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.rig.parts import Rig
from tests.reliability.crashes import Scene, prepare, start, unprepare, whole_npus
from tests.reliability.matrix import Seen, die_everywhere, die_once, good_node, points_of

HALF_A_FILE = tuple(
    f"{kind} {name}"
    for kind in ("open", "write", "chmod")
    for name in (
        "cdi/.",
        "plugins/npu.huawei.com/claims/.",
        "plugins/npu.huawei.com/serialize.lock",
    )
)


@pytest.fixture(scope="module")
def shared(simulator: Path) -> Iterator[Seen]:
    """A run in which nothing dies, of claims that have a share of their NPU."""

    def scene(rig: Rig) -> Scene:
        kept = rig.claim("kept", "npu-0", share_id="share-1")
        new = rig.claim("new", "npu-1", share_id="share-1")
        return Scene(rig, kept, new, is_shared=True)

    with good_node(simulator, 3, scene, sharing="shares") as seen:
        yield seen


@pytest.fixture(scope="module")
def whole(simulator: Path) -> Iterator[Scene]:
    """One with whole NPUs."""
    with good_node(simulator, 3, whole_npus) as seen:
        yield seen.scene


async def test_a_death_in_a_prepare_of_a_share(whole: Scene, shared: Seen) -> None:
    """No container starts while its chip is not shared, and no chip stays shared for nobody.

    Apart from what every prepare does, which is tried above.
    """
    usual = await points_of(whole, prepare)
    points = await die_everywhere(shared, shared.scene, prepare, but=usual, at=_counts)
    assert any(point.endswith("board.state") for point in points)


async def test_a_death_in_an_unprepare_of_a_share(whole: Scene, shared: Seen) -> None:
    """The same."""
    usual = await points_of(whole, unprepare)
    points = await die_everywhere(shared, shared.scene, unprepare, but=usual, at=_counts)
    assert any(point.endswith("board.state") for point in points)


async def test_a_death_in_a_start_that_finishes_a_share(shared: Seen, folder: Path) -> None:
    """Apart from what other starts do too, which is tried above."""
    usual = await points_of(shared.scene, start)
    scene = shared.scene.like(folder)
    await die_once(scene, prepare, lambda point: not point.endswith("board.state"))
    points = await die_everywhere(
        shared, scene, start, but=usual, at=lambda point: _counts(point) and _is_no_half(point)
    )
    assert any("claims/NEW" in point for point in points)


def _counts(point: str) -> bool:
    """Whether a death leaves there what none of whole NPUs leaves."""
    return not point.startswith(HALF_A_FILE) and not point.endswith(".sock")


def _is_no_half(point: str) -> bool:
    """Whether it is none of half a file of share flags, which is tried in a prepare."""
    return point.startswith("rename") or "share-flags.json.*" not in point
