"""A claim with steps is whole or on its way, whatever state it is in and wherever it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from tests.claims.marking import marks, two_steps
from tests.claims.node import AT_ONCE, NodeOnDisk, claim, ref, result
from tests.claims.restarted import errors_in
from tests.claims.test_cancelled import cancelled_at, keep_busy
from trio_npu_dra.claims.patience import Patience
from trio_npu_dra.claims.repair import Repair, keep_cdi_files
from trio_npu_dra.claims.service import NodeClaims
from trio_npu_dra.claims.transitions import TRANSITIONS, Action, Goal, Situation
from trio_npu_dra.errors import Busy, NpuDraError, StorageError
from trio_npu_dra.holds.entry import Entry, State

DONE = {"uid-a.make", "uid-a.flag"}
GONE: set[str] = set()


def test_the_table_has_an_action_for_each_situation_and_goal() -> None:
    """Only a prepare can find a hold to be for another allocation."""
    for situation in Situation:
        goals = set(Goal) if situation is not Situation.OUTDATED else {Goal.PREPARE}
        assert TRANSITIONS[situation].keys() == goals
        assert TRANSITIONS[situation][Goal.PREPARE] is not Action.NOTHING


class Driver:
    """One instance with two steps."""

    def __init__(self, node: NodeOnDisk, patience: Patience = AT_ONCE) -> None:
        self.node = node
        self.ledger = node.ledger()
        self.steps = two_steps(node.root)
        self.claims: NodeClaims = node.start(
            ledger=self.ledger, steps=self.steps, patience=patience
        )
        self._repair = Repair(self.ledger, node.cdi(), self.steps)

    async def prepare(self, name: str = "a") -> str:
        """Prepare a claim; what went wrong."""
        return (await self.claims.prepare([ref(name)]))[f"uid-{name}"].error

    async def unprepare(self, name: str = "a") -> str:
        """The same for unprepare."""
        return (await self.claims.unprepare([ref(name)]))[f"uid-{name}"]

    async def repair(self) -> str:
        """Look as a start does."""
        await self._repair.look(is_first=True)
        return ""


@pytest.fixture
def driver(quick_node: NodeOnDisk) -> Driver:
    """An instance; claim a wants NPU 2, b wants it too, c wants NPU 3."""
    quick_node.source.store(
        claim("a", result("npu-2")), claim("b", result("npu-2")), claim("c", result("npu-3"))
    )
    return Driver(quick_node)


async def change(driver: Driver, make: Callable[[Entry], Entry]) -> None:
    """Have the record be what a death left."""
    async with driver.ledger.exclusive():
        driver.ledger.put(make(driver.ledger.by_uid["uid-a"]))


async def leave(driver: Driver, state: str) -> None:
    """Bring claim a into a state, as somebody who died has left it."""
    node = driver.node
    if state == "absent":
        return
    assert await driver.prepare() == ""
    if state.startswith("intended"):
        node.cdi_path("uid-a").unlink()
        (node.root / "markers/uid-a.flag").unlink()
        if state == "intended, nothing done":
            (node.root / "markers/uid-a.make").unlink()
            await change(
                driver, lambda entry: replace(entry, state=State.INTENDED, steps=("make",))
            )
        else:
            await change(driver, lambda entry: replace(entry, state=State.INTENDED))
    elif state.startswith("undoing"):
        await change(driver, lambda entry: replace(entry, state=State.UNDOING))
        if state == "undoing, all undone":
            node.cdi_path("uid-a").unlink()
            (node.state_folder / "steps/uid-a.lock").unlink()
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
    locks = [*(node.state_folder / "steps").glob("*")]
    return not (node.record_uids() or node.cdi_uids() or marks(node.root) or locks)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("state", STATES)
async def test_each_goal_is_reached_from_each_state(
    driver: Driver, state: str, goal: Goal, is_restarted: bool
) -> None:
    """By the process that left it so, or by the next."""
    await leave(driver, state)
    if is_restarted:
        driver = Driver(driver.node)
    reach = {
        Goal.PREPARE: driver.prepare,
        Goal.UNPREPARE: driver.unprepare,
        Goal.REPAIR: driver.repair,
    }

    assert await reach[goal]() == ""

    if goal is Goal.PREPARE:
        assert is_whole(driver)
        given = driver.node.record("uid-a")["allocation"][0]["device"]
        assert given == ("npu-5" if state == "outdated" else "npu-2")
    elif goal is Goal.UNPREPARE:
        assert is_absent(driver)
    else:
        kept = state.startswith("intended") or state in {"outdated", *READY}
        assert is_whole(driver) if kept else is_absent(driver)


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
async def test_a_step_that_fails_keeps_the_hold_and_is_done_again(
    driver: Driver, which: int
) -> None:
    """No container can start meanwhile, and nobody else gets the NPU."""
    driver.steps[which].faults.append(StorageError("broken"))

    assert await driver.prepare() == "broken"

    assert (driver.node.record_uids(), driver.node.cdi_uids()) == ({"uid-a"}, set())
    assert "held by claim default/a" in await driver.prepare("b")
    assert await driver.prepare() == ""
    assert is_whole(driver)
    assert [step.times for step in driver.steps] == ([2, 1] if which == 0 else [1, 2])


@pytest.mark.parametrize("which", [0, 1])
async def test_a_step_that_cannot_be_undone_keeps_the_hold(driver: Driver, which: int) -> None:
    """The steps before it are not touched; no container can start; the next call goes on."""
    await driver.prepare()
    driver.steps[which].faults.append(Busy(-8020, "dcmi_set_destroy_vdevice"))

    assert "returned -8020" in await driver.unprepare()

    assert (driver.node.record_uids(), driver.node.cdi_uids()) == ({"uid-a"}, set())
    assert ("uid-a.make" in marks(driver.node.root)) == (which == 1)
    assert "held by claim default/a" in await driver.prepare("b")
    assert await driver.unprepare() == ""
    assert is_absent(driver)


async def test_what_is_busy_is_tried_again_within_the_call(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """In both directions, for as long as the kubelet waits."""
    del autojump_clock
    quick_node.source.store(claim("a", result("npu-2")))
    driver = Driver(quick_node, Patience())
    driver.steps[1].faults.extend([Busy(-8020, "make")] * 5)
    assert await driver.prepare() == ""
    assert is_whole(driver)

    driver.steps[0].faults.extend([Busy(-8020, "destroy")] * 5)
    assert await driver.unprepare() == ""
    assert is_absent(driver)

    driver.steps[0].faults.extend([Busy(-8020, "make")] * 1000)
    since = trio.current_time()
    assert "returned -8020" in await driver.prepare()
    assert 35 < trio.current_time() - since < 40


async def test_a_replaced_allocation_undoes_the_old_steps_before_the_new_ones(
    driver: Driver,
) -> None:
    """And onto a device that another holds the claim keeps nothing."""
    await driver.prepare()
    driver.steps[0].faults.append(Busy(-8020, "destroy"))
    driver.node.source.store(claim("a", result("npu-5")))
    assert "returned -8020" in await driver.prepare()
    assert driver.node.record("uid-a")["state"] == "undoing"
    assert driver.node.record("uid-a")["allocation"][0]["device"] == "npu-2"

    assert await driver.prepare() == ""
    assert is_whole(driver)

    await driver.prepare("c")
    driver.node.source.store(claim("a", result("npu-3")))
    assert "held by claim default/c" in await driver.prepare()
    assert driver.node.record_uids() == driver.node.cdi_uids() == {"uid-c"}
    assert marks(driver.node.root) == {"uid-c.make", "uid-c.flag"}


async def test_claims_that_change_places_have_their_steps_undone_first(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Each waits until the other has let go."""
    del autojump_clock
    node = quick_node
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    driver = Driver(node, Patience())
    await driver.claims.prepare([ref("a"), ref("b")])
    node.source.store(claim("a", result("npu-3")), claim("b", result("npu-2")))

    answers = await driver.claims.prepare([ref("a"), ref("b")])

    assert [answer.error for answer in answers.values()] == ["", ""]
    assert [answer.devices[0].device for answer in answers.values()] == ["npu-3", "npu-2"]


async def test_no_container_starts_while_what_is_lost_is_done_again(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """The NPU stays the claim's; each look tries again, and says so once."""
    await leave(driver, "ready, the first step lost")
    driver.steps[0].faults.extend([StorageError("no room")])

    await driver.repair()

    assert driver.node.cdi_uids() == set()
    assert (driver.node.record("uid-a")["state"], driver.node.record("uid-a")["steps"]) == (
        "intended",
        ["make"],
    )
    assert "held by claim default/a" in await driver.prepare("b")
    await driver.repair()
    assert is_whole(driver)
    lost = [line for line in caplog.messages if "is lost and is done again" in line]
    assert len(lost) == 1


# --- cancelled, side by side ---------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("goal", [Goal.PREPARE, Goal.UNPREPARE])
async def test_a_call_can_be_cancelled_at_each_checkpoint(
    driver: Driver, state: str, goal: Goal, autojump_clock: MockClock
) -> None:
    """What it leaves is a row of the table: a start settles it, the next call completes it."""
    del autojump_clock
    step, goes_on = 1, True
    while goes_on:
        driver.node.source.store(claim("a", result("npu-2")))
        await leave(driver, state)
        keep_busy(driver.ledger)
        act = driver.prepare if goal is Goal.PREPARE else driver.unprepare
        goes_on = await cancelled_at(step, act)
        assert driver.node.cdi_uids() <= driver.node.record_uids()
        await Driver(driver.node).repair()
        assert is_whole(driver) or is_absent(driver), step
        driver = Driver(driver.node)
        assert await driver.prepare() == ""
        assert is_whole(driver)
        assert await driver.unprepare() == ""
        assert is_absent(driver)
        step += 1
    assert step > 2


async def test_calls_about_one_claim_take_turns_at_its_steps(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Two pods that share it, an unprepare, and another instance; other claims do not wait."""
    del autojump_clock
    node = quick_node
    node.source.store(claim("a", result("npu-2")), claim("c", result("npu-3")))
    drivers = [Driver(node, Patience()) for _ in range(2)]
    busy: set[str] = set()
    for driver in drivers:
        for marker in driver.steps:
            marker.seconds, marker.busy = 1.0, busy
    done: list[str] = []

    async def call(name: str, act: Callable[[], object]) -> None:
        assert await act() == ""  # type: ignore[misc]
        done.append(name)

    for _ in range(3):
        async with trio.open_nursery() as nursery:
            for driver in drivers:
                nursery.start_soon(call, "prepare", driver.prepare)
                nursery.start_soon(call, "unprepare", driver.unprepare)
            nursery.start_soon(call, "other", lambda: drivers[0].prepare("c"))
        assert await drivers[1].unprepare("c") == ""
        assert await drivers[0].unprepare() == ""
        assert is_absent(drivers[0])
    assert done.count("other") == 3


async def test_a_look_leaves_a_claim_that_somebody_is_at_alone(
    quick_node: NodeOnDisk,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    """No word of it; one that was given up is finished at the next look."""
    del autojump_clock
    node = quick_node
    node.source.store(claim("a", result("npu-2")))
    first, second = Driver(node, Patience()), Driver(node)
    busy: set[str] = set()
    for marker in (*first.steps, *second.steps):
        marker.busy = busy
    first.steps[0].seconds = 12.0
    await nursery.start(keep_cdi_files, second.ledger, node.cdi(), second.steps)
    with trio.move_on_after(11):
        await first.prepare()
    assert errors_in(caplog) == []
    assert node.record("uid-a")["state"] == "intended"

    await trio.sleep(6)
    assert is_whole(second)


async def test_a_repair_that_fails_is_said_once_and_tried_on(
    driver: Driver,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    """With the claim and the reason."""
    del autojump_clock
    await leave(driver, "undoing")
    faults: list[NpuDraError] = [Busy(-8020, "destroy")] * 4
    driver.steps[1].faults.extend(faults)

    await nursery.start(keep_cdi_files, driver.ledger, driver.node.cdi(), driver.steps)
    await trio.sleep(16)
    assert errors_in(caplog) == ["default/a: destroy returned -8020"]
    await trio.sleep(6)
    assert is_absent(driver)


async def test_locks_of_claims_that_are_gone_are_swept_at_a_start(driver: Driver) -> None:
    """Such as of an earlier boot; not those of others."""
    await driver.prepare()
    folder = driver.node.state_folder / "steps"
    (folder / "uid-gone.lock").write_text("")
    (folder / "note").write_text("")

    await driver.repair()

    assert {path.name for path in folder.iterdir()} == {"uid-a.lock", "note"}


@pytest.mark.parametrize("names", ["ab", "ba"])
async def test_of_two_claims_of_one_call_the_first_gets_the_device(
    driver: Driver, names: str
) -> None:
    """Before any step is done."""
    answers = await driver.claims.prepare([ref(name) for name in names])
    assert [not answer.error for answer in answers.values()] == [True, False]
    assert marks(driver.node.root) == {f"uid-{names[0]}.make", f"uid-{names[0]}.flag"}


async def test_something_foreign_in_the_place_of_the_locks_stops_no_other_claim(
    driver: Driver, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """A claim with steps fails by name, and a start repairs the files of the others."""
    node = driver.node
    node.source.store(claim("watch", result("npu-2", admin_access=True)))
    (node.root / "state").mkdir()
    (node.root / "state/steps").write_text("")
    assert "/steps: a file is in its place" in await driver.prepare()
    assert await driver.prepare("watch") == ""
    node.cdi_path("uid-watch").unlink()

    await nursery.start(keep_cdi_files, node.ledger(), node.cdi(), driver.steps)

    assert node.cdi_uids() == {"uid-watch"}
    assert any("/steps: " in problem for problem in errors_in(caplog))


async def test_a_claim_that_needs_no_step_has_none(driver: Driver) -> None:
    """It is ready at once, without a lock of its own."""
    driver.node.source.store(claim("watch", result("npu-2", admin_access=True)))

    assert await driver.prepare("watch") == ""

    assert driver.node.record("uid-watch")["steps"] == []
    assert marks(driver.node.root) == GONE
    assert not (driver.node.state_folder / "steps").exists()
