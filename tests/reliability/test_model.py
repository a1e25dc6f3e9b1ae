"""Whatever happens to a node and in whatever order, its claims are what a plain model says."""

from __future__ import annotations

import shutil
from typing import Any

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from tests.claims.marking import marks
from tests.claims.test_cancelled import cancelled_at
from tests.reliability.disk import Disk
from tests.reliability.expected import Expected
from tests.reliability.holds import (
    BROKEN,
    check_moment,
    given,
    gives_no_chip_twice,
    guarded_on,
    marked,
    on_cards,
    recorded_on,
    wanted,
)
from tests.reliability.instance import MarkingInstance, NodeModel, board, calling, refs, run
from tests.reliability.wishes import CHIPS, WHOLE, Way, Wish
from trio_npu_dra.agent.claims.service import NodeClaims
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.kit.base.errors import Unavailable
from trio_npu_dra.kit.kubelet.driver import PrepareResult

DEVICES = (*WHOLE,)
A_LOOK_SECONDS = 6.0

some_ways = st.sampled_from([Way.OWN, Way.LOOKS_ON, Way.BY_SHARES, Way.BY_SHARES])
some_devices = st.sets(st.sampled_from(DEVICES), min_size=1, max_size=3).filter(
    lambda devices: (
        sum(len(CHIPS[device]) for device in devices)
        == len({chip for device in devices for chip in CHIPS[device]})
    )
)


class Node(Expected, NodeModel):
    """A node with the driver, one instance after the other."""

    uids = Bundle("uids")

    def __init__(self) -> None:
        super().__init__()
        self.expect(self.node)
        self.node.board.set(board(MultiDiePolicy.INDEPENDENT))
        markers = self.node.root / "markers"
        self.disk = Disk(self.node.state_folder, self.node.cdi_root, markers, self.flags)

    @initialize(target=uids)
    def start(self) -> Any:
        """The driver comes up, and there are claims for one device."""
        self.instance = MarkingInstance(self.node)
        run(self.instance.live)
        one = {DEVICES[0]}
        return multiple(self.allocate(one, way=Way.OWN), self.allocate(one, way=Way.OWN))

    # --- what the scheduler does -----------------------------------------------------------------

    @precondition(lambda self: len(self.allocated) < 6)
    @rule(target=uids, devices=some_devices, way=some_ways)
    def allocate(self, devices: set[str], way: Way) -> str:
        """A claim gets devices, also such as another one has: the scheduler may know better."""
        uid = f"uid-{len(self.allocated)}"
        self.allocate_again(uid, devices, way)
        return uid

    @rule(uid=uids, devices=some_devices, way=some_ways)
    def allocate_again(self, uid: str, devices: set[str], way: Way) -> None:
        """A claim gets others: no pod uses it any more."""
        self.allocated[uid] = Wish(frozenset(devices), way)
        self.node.source.store(self.allocated[uid].claim(uid))

    # --- what the kubelet does -------------------------------------------------------------------

    @rule(uids=st.lists(uids, min_size=1, max_size=3, unique=True))
    def prepare(self, uids: list[str]) -> None:
        """Whoever has what it needs is prepared, whoever has not gets the name of the holder."""
        guards = self.guards()
        answers = run(lambda: self.instance.claims.prepare(refs(uids)))
        self.judge(answers, until_then=guards)

    @rule(
        uids=st.lists(uids, min_size=1, max_size=2, unique=True),
        others=st.lists(uids, min_size=1, max_size=2, unique=True),
    )
    def prepare_side_by_side(self, uids: list[str], others: list[str]) -> None:
        """Two calls at once are as one."""
        answers: dict[str, PrepareResult] = {}

        async def one(claims: NodeClaims, asked: list[str]) -> None:
            answers.update(await claims.prepare(refs(asked)))

        async def both() -> None:
            async with trio.open_nursery() as nursery:
                for asked in (uids, [uid for uid in others if uid not in uids]):
                    nursery.start_soon(one, self.instance.claims, asked)

        before = self.guards() | self.held
        run(both)
        self.judge(answers, until_then=before)

    @rule(uids=st.lists(uids, min_size=1, max_size=3, unique=True))
    def prepare_without_api_server(self, uids: list[str]) -> None:
        """Nobody is prepared anew, and nobody loses anything."""
        self.node.source.faults.extend([Unavailable("503", status=503)] * 1000)
        answers = run(lambda: self.instance.claims.prepare(refs(uids)))
        self.node.source.faults.clear()
        assert all(answer.error for answer in answers.values())

    @rule(
        uids=st.lists(uids, min_size=1, max_size=3, unique=True),
        is_api_away=st.booleans(),
    )
    def unprepare(self, uids: list[str], is_api_away: bool) -> None:
        """Always possible, with or without an API server, prepared or not."""
        self.node.source.faults.extend([Unavailable("503", status=503)] * is_api_away)
        answers = run(lambda: self.instance.claims.unprepare(refs(uids)))
        self.node.source.faults.clear()
        assert answers == dict.fromkeys(uids, "")
        self.forget(uids)

    @rule(
        uids=st.lists(uids, min_size=1, max_size=3, unique=True),
        is_prepare=st.booleans(),
        step=st.integers(1, 20),
    )
    def cancel(self, uids: list[str], is_prepare: bool, step: int) -> None:
        """The kubelet hangs up: done or not done, and the next look settles what is between."""
        call = calling(self.instance, uids, is_prepare)
        run(lambda: cancelled_at(step, call))
        run(self.instance.live)
        self._repaired()
        self.adopt(uids, is_prepare)

    # --- what happens to the node ----------------------------------------------------------------

    @rule(
        uids=st.lists(uids, min_size=1, max_size=3, unique=True),
        is_prepare=st.booleans(),
        moment=st.integers(0, 30),
    )
    def die(self, uids: list[str], is_prepare: bool, moment: int) -> None:
        """An instance is killed within a call, before any system call on files, and comes back."""
        with self.disk.states() as states:
            run(calling(self.instance, uids, is_prepare))
        for state in states:
            check_moment(self.node, state, self.allocated.keys() - self.wrong)
        self.disk.restore(states[moment % len(states)])
        self._restart()
        self.adopt(uids, is_prepare)

    @rule()
    def restart(self) -> None:
        """An instance ends in order, and another one starts."""
        self._restart()

    @rule(policy=st.sampled_from(MultiDiePolicy))
    def change_policy(self, policy: MultiDiePolicy) -> None:
        """The dies of the A3 card go out together, or one by one, from now on."""
        self.node.board.set(board(policy))

    @rule(is_cdi_volatile=st.booleans(), are_flags_recovered=st.booleans())
    def reboot(self, is_cdi_volatile: bool, are_flags_recovered: bool) -> None:
        """No container is left: the kubelet prepares again what is to go on."""
        self.node.reboot()
        if is_cdi_volatile:
            shutil.rmtree(self.node.cdi_root, ignore_errors=True)
        shutil.rmtree(self.node.root / "markers", ignore_errors=True)
        if not are_flags_recovered:
            shutil.rmtree(self.flags, ignore_errors=True)
        self.held.clear()
        self._restart()
        assert self.node.record_uids() == set()

    @rule(uid=uids)
    def lose_cdi_file(self, uid: str) -> None:
        """Somebody cleans up /etc/cdi."""
        self.node.cdi_path(uid).unlink(missing_ok=True)
        if uid in self.held:
            self.lost.add(uid)

    @rule(uid=uids, content=st.sampled_from([b"", b"{}"]))
    def spoil_cdi_file(self, uid: str, content: bytes) -> None:
        """A power cut leaves a part of a file."""
        if uid in self.held and uid not in self.lost:
            self.node.cdi_path(uid).write_bytes(content)
            self.wrong.add(uid)

    @rule(uid=uids)
    def break_record(self, uid: str) -> None:
        """A bad disk: seen at the next start, and no reason to take anything from the pod."""
        if uid not in self.held:
            return
        (self.node.records_folder / f"{uid}.json").write_bytes(BROKEN)
        del self.held[uid]
        self.stray.add(uid)
        self._restart()
        assert uid in self.unreadable

    @rule()
    def lose_records(self) -> None:
        """Somebody removes the folder with the records, which the driver knows."""
        run(self.instance.live)
        shutil.rmtree(self.node.records_folder)
        run(self.instance.live)
        self.lost.clear()
        self.wrong.clear()

    @rule()
    def look(self) -> None:
        """Five seconds pass."""
        run(lambda: self.instance.live(A_LOOK_SECONDS))
        self._repaired()

    # --- what must always hold -------------------------------------------------------------------

    @invariant()
    def has_the_records_of_the_model(self) -> None:
        """Every claim that was answered OK and not unprepared, and no other."""
        assert recorded_on(self.node) == self.held

    @invariant()
    def gives_no_chip_twice(self) -> None:
        """Admin access excepted; a module and its dies count as one."""
        gives_no_chip_twice(self.held.values())

    @invariant()
    def has_the_right_cdi_files(self) -> None:
        """One for each record, none besides; but for those that somebody took or spoilt."""
        present = self.node.cdi_uids()
        assert self.held.keys() - self.lost <= present
        assert present <= self.held.keys() | self.unreadable
        for uid in self.held.keys() - self.lost - self.wrong:
            assert given(self.node.cdi_path(uid)) == wanted(uid, self.held[uid])

    @invariant()
    def has_done_the_steps_of_all_and_no_others(self) -> None:
        """Whoever is prepared has all, and nobody else has one."""
        strays = {mark for mark in marks(self.node.root) if mark.split(".")[0] in self.stray}
        assert marks(self.node.root) - strays == marked(self.held) - strays
        assert marked(self.held) <= marks(self.node.root)

    @invariant()
    def shares_the_chips_that_claims_share(self) -> None:
        """No container finds its chip taken by another with which it shares."""
        shared = {uid: hold for uid, hold in self.held.items() if hold.is_shared}
        assert on_cards(shared.values()) <= self.shared_chips

    @invariant()
    def has_no_unfinished_files(self) -> None:
        """Not after the start that follows."""
        assert not self.node.unfinished_files()

    def teardown(self) -> None:
        """Everything can be unprepared at last, and leaves nothing."""
        if self.allocated:
            self.unprepare(list(self.allocated), is_api_away=True)
            assert recorded_on(self.node) == {}
            assert self.unreadable == self.node.cdi_uids() == set()
            run(self.instance.live)
            assert self.shared_chips == set()
        self.close()

    # --- doing -----------------------------------------------------------------------------------

    def _restart(self) -> None:
        self.instance = MarkingInstance(self.node)
        run(self.instance.live)
        self._repaired()
        self.wrong.clear()

    def _repaired(self) -> None:
        """After a look, which leaves no chip shared that nobody has."""
        self.lost.clear()
        others = guarded_on(self.node, self.unreadable)
        held = recorded_on(self.node)
        assert self.shared_chips <= on_cards([*held.values(), *others.values()])


Node.TestCase.settings = settings(stateful_step_count=25)
TestNode = Node.TestCase
