"""A driver instance whose claims have two steps, and the states in which claim a can be left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.claims.instance import Instance
from tests.claims.marking import marks, two_steps
from tests.claims.node import AT_ONCE, NodeOnDisk, claim, result
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.holds.entry import Entry, EntryState

DONE = {"uid-a.make", "uid-a.flag"}
GONE: set[str] = set()


class Driver(Instance):
    """One instance with two steps."""

    def __init__(self, node: NodeOnDisk, patience: Patience = AT_ONCE) -> None:
        self.steps = two_steps(node.root)
        super().__init__(node, lambda *_: self.steps, patience=patience)


def driver_on(node: NodeOnDisk) -> Driver:
    """An instance; claim a wants NPU 2, b wants it too, c wants NPU 3."""
    node.source.store(
        claim("a", result("npu-2")), claim("b", result("npu-2")), claim("c", result("npu-3"))
    )
    return Driver(node)


async def change(driver: Driver, make: Callable[[Entry], Entry]) -> None:
    """Have the record be what a death left."""
    async with driver.ledger.exclusive():
        driver.ledger.put(make(driver.ledger.by_uid["uid-a"]))


async def leave(driver: Driver, state: str) -> None:
    """Bring claim a into a state, as somebody who died has left it."""
    node = driver.node
    if state == "absent":
        return
    assert await driver.prepare("a") == ""
    if state.startswith("intended"):
        node.cdi_path("uid-a").unlink()
        (node.root / "markers/uid-a.flag").unlink()
        if state == "intended, nothing done":
            (node.root / "markers/uid-a.make").unlink()
            await change(
                driver, lambda entry: replace(entry, state=EntryState.INTENDED, steps=("make",))
            )
        else:
            await change(driver, lambda entry: replace(entry, state=EntryState.INTENDED))
    elif state.startswith("undoing"):
        await change(driver, lambda entry: replace(entry, state=EntryState.UNDOING))
        if state == "undoing, all undone":
            node.cdi_path("uid-a").unlink()
            for name in DONE:
                (node.root / "markers" / name).unlink()
            await change(driver, lambda entry: replace(entry, steps=()))
    elif state == "ready, the first step lost":
        (node.root / "markers/uid-a.make").unlink()
    elif state == "ready, the last step lost":
        (node.root / "markers/uid-a.flag").unlink()
    elif state == "outdated":
        node.source.store(claim("a", result("npu-5")))


STATES = (
    "absent",
    "intended, nothing done",
    "intended, half done",
    "ready",
    "ready, the first step lost",
    "ready, the last step lost",
    "undoing",
    "undoing, all undone",
    "outdated",
)
READY = {state for state in STATES if state.startswith("ready")}


def is_whole(driver: Driver) -> bool:
    """Whether claim a is prepared, wholly, and nothing else is there."""
    node = driver.node
    return (
        node.record_uids() == node.cdi_uids() == {"uid-a"}
        and node.record("uid-a")["state"] == "ready"
        and node.record("uid-a")["steps"] == ["make", "flag"]
        and marks(node.root) == DONE
    )


def is_absent(driver: Driver) -> bool:
    """Whether nothing of it is there."""
    node = driver.node
    return not (node.record_uids() or node.cdi_uids() or marks(node.root))
