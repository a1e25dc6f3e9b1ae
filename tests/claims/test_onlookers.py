"""Claims with admin access block no other claim."""

from __future__ import annotations

from tests.claims.flags import FlagFiles
from tests.claims.node import NodeOnDisk, claim, result
from tests.claims.sharing import Driver, noted


def with_monitor(node: NodeOnDisk) -> Driver:
    """A claim with a share of NPU 2, and one that looks on."""
    node.source.store(
        claim("a", result("npu-2", share_id="share-a")),
        claim("monitor", result("npu-2", admin_access=True)),
    )
    return Driver(node, FlagFiles(node.root / "flags", node.board))


async def test_a_claim_that_ends_does_not_wait_for_an_observer(quick_node: NodeOnDisk) -> None:
    """Its process may use the chip for ever; the flag is taken back once it does not."""
    driver = with_monitor(quick_node)
    assert await driver.prepare("a") == ""
    assert await driver.prepare("monitor") == ""
    driver.flags.used_by[2] = (4711,)
    assert await driver.unprepare("a") == ""
    await driver.look()
    assert driver.flags.on == {2}
    driver.flags.used_by.clear()
    await driver.look()
    assert driver.flags.on == set()
    assert not noted(driver)


async def test_a_claim_that_waits_is_told_of_the_observer(quick_node: NodeOnDisk) -> None:
    """A chip in use cannot be shared."""
    driver = with_monitor(quick_node)
    assert await driver.prepare("monitor") == ""
    driver.flags.used_by[2] = (4711,)
    answer = await driver.prepare("a")
    assert "process 4711, claim default/monitor (admin access)" in answer
