"""A die that the library does not list is not asked: another chip may go by its numbers now."""

from __future__ import annotations

from dataclasses import replace

from dev.rig.boards import a3, die
from tests.claims.flags import FlagFiles
from tests.claims.node import NodeOnDisk, claim, result
from tests.claims.test_share_flag import Driver
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy


async def test_a_die_is_shared_whose_sister_is_not_listed(quick_node: NodeOnDisk) -> None:
    """The sister may be gone, or start; its flag is not looked at."""
    sister = replace(die(2), unlisted=True)
    quick_node.board.set(a3(sister, die(3), policy=MultiDiePolicy.INDEPENDENT))
    quick_node.source.store(claim("a", result("npu-3", share_id="share-a")))
    driver = Driver(quick_node, FlagFiles(quick_node.root / "flags", quick_node.board))
    assert await driver.prepare("a") == ""
    assert driver.flags.on == {3}
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == set()


async def test_a_die_that_is_not_listed_is_not_shared(quick_node: NodeOnDisk) -> None:
    """The claim waits until it is."""
    absent = replace(die(2), unlisted=True)
    quick_node.board.set(a3(absent, die(3), policy=MultiDiePolicy.INDEPENDENT))
    quick_node.source.store(claim("a", result("npu-2", share_id="share-a")))
    driver = Driver(quick_node, FlagFiles(quick_node.root / "flags", quick_node.board))
    assert "npu-2 cannot be shared now" in (await driver.prepare("a")).replace(
        "/dev/davinci", "npu-"
    )
    assert driver.flags.changes == []
