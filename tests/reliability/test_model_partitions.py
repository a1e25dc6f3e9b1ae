"""Whatever happens to a node whose NPUs are cut and shared, claims have what they should, not more.

It has two chips that can be cut and an A3 card. Claims have partitions, whole chips or the module,
for themselves, shared by their config, or by shares; instances cut chips or do not, as their flags
were at their start. The chips are folders here, with a file for each vNPU that has its template,
and a file for each share flag that is set: so a death can be tried between any two changes of
records, CDI files, vNPUs and flags.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, invariant, multiple, rule

from tests.claims.chip_folders import AWAY, Chips, CutHost, board_of_all
from tests.claims.flags import FlagFiles
from tests.claims.instance import Instance
from tests.claims.node import NodeOnDisk
from tests.claims.test_cancelled import cancelled_at
from tests.reliability.disk import Disk
from tests.reliability.expected import UNKNOWN
from tests.reliability.holds import recorded
from tests.reliability.instance import FLAGS, NodeModel, calling, refs, run
from tests.reliability.wishes import CHIPS, PARTITIONS, Way, Wish, share_of, some_wishes
from trio_npu_dra.agent.claims.vnpu_step import VnpuStep
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.ascend.offers import PartitionMode
from trio_npu_dra.ascend.vnpus import Vnpus
from trio_npu_dra.kit.base.observable import Observable


class CuttingInstance(Instance):
    """An instance whose claims have partitions and share flags for steps."""

    def __init__(self, node: NodeOnDisk, chips: Path, *, is_partitioning: bool = True) -> None:
        host = CutHost(host_root=node.host.host_root, dev_root=node.host.dev_root, chips=chips)
        vnpus = cast("Vnpus", Chips(chips))
        flags = FlagFiles(node.root / FLAGS, node.board)
        super().__init__(
            node,
            lambda ledger, cdi: (
                VnpuStep(ledger=ledger, cdi=cdi, vnpus=vnpus, host=host),
                ShareFlagStep(ledger, cdi, node.board, flags),
            ),
            partitioning=Observable(PartitionMode(is_on=is_partitioning)),
        )
        self.is_partitioning = is_partitioning


class Node(NodeModel):
    """A node with the driver, one instance after the other."""

    uids = Bundle("uids")

    def __init__(self) -> None:
        super().__init__()
        self.node.board.set(board_of_all())
        self.chips = self.root / "chips"
        for number in range(2):
            (self.chips / f"davinci{number}").mkdir(parents=True)
        self.disk = Disk(self.node.state_folder, self.node.cdi_root, self.chips, self.flags)
        self.allocated: dict[str, Wish] = {}
        self.prepared: dict[str, Wish] = {}
        self.by_hand: dict[str, str] = {}

    @initialize(target=uids)
    def start(self) -> Any:
        """The driver comes up; there are claims for one partition and for shares of one chip."""
        self.instance = CuttingInstance(self.node, self.chips)
        wishes = (
            *[Wish(frozenset({PARTITIONS[0]}))] * 2,
            *[Wish(frozenset({"npu-1"}), Way.BY_SHARES)] * 2,
        )
        return multiple(*(self.allocate(wish) for wish in wishes))

    @rule(target=uids, wish=some_wishes)
    def allocate(self, wish: Wish) -> str:
        """A claim gets devices, also such as do not fit: the scheduler may know better."""
        uid = f"uid-{len(self.allocated)}"
        self.allocate_again(uid, wish)
        return uid

    @rule(uid=uids, wish=some_wishes)
    def allocate_again(self, uid: str, wish: Wish) -> None:
        """A claim gets others: no pod uses it any more."""
        self.node.source.store(wish.claim(uid))
        self.allocated[uid] = wish

    # --- what the kubelet does -------------------------------------------------------------------

    @rule(uids=st.lists(uids, min_size=1, max_size=3, unique=True))
    def prepare(self, uids: list[str]) -> None:
        """Whoever has what it needs is prepared; whoever keeps it from another one is named."""
        before = dict(self.prepared)
        answers = run(lambda: self.instance.claims.prepare(refs(uids)))
        given = {uid: self.allocated[uid] for uid, answer in answers.items() if not answer.error}
        for uid, answer in answers.items():
            wish = self.allocated[uid]
            if not answer.error:
                self.prepared[uid] = wish
            elif UNKNOWN in answer.error:  # then it keeps what it had
                held = (*before.values(), *given.values())
                assert self._may_be_unknown(wish, self.instance, held)
            else:
                assert "held by claim" in answer.error
                others = [*before.items(), *given.items()]
                assert any(wish.excludes(one) for other, one in others if other != uid)
                if self.prepared.get(uid) != wish:
                    self.prepared.pop(uid, None)

    @rule(uids=st.lists(uids, min_size=1, max_size=3, unique=True))
    def unprepare(self, uids: list[str]) -> None:
        """Always possible."""
        answers = run(lambda: self.instance.claims.unprepare(refs(uids)))
        assert answers == dict.fromkeys(uids, "")
        for uid in uids:
            self.prepared.pop(uid, None)

    @rule(uids=st.lists(uids, min_size=1, max_size=3, unique=True))
    def unprepare_while_chips_are_away(self, uids: list[str]) -> None:
        """They come back as they were: what is left of claims is removed at the next occasion."""
        (self.chips / AWAY).touch()
        self.unprepare(uids)
        (self.chips / AWAY).unlink()

    @rule(uid=uids, is_prepare=st.booleans(), step=st.integers(1, 30))
    def cancel(self, uid: str, is_prepare: bool, step: int) -> None:
        """The kubelet hangs up, and the next look settles what is between."""
        call = calling(self.instance, [uid], is_prepare)
        run(lambda: cancelled_at(step, call))
        run(self.instance.look)
        self._adopt(uid)

    # --- what happens to the node ----------------------------------------------------------------

    @rule(uid=uids, is_prepare=st.booleans(), moment=st.integers(0, 60))
    def die(self, uid: str, is_prepare: bool, moment: int) -> None:
        """An instance is killed between any two changes, and comes back."""
        with self.disk.states() as states:
            run(calling(self.instance, [uid], is_prepare))
        self.disk.restore(states[moment % len(states)])
        self._restart()
        run(self.instance.look)
        self._adopt(uid)

    @rule(is_partitioning=st.booleans())
    def restart(self, is_partitioning: bool) -> None:
        """An instance ends in order, and another one starts, perhaps with another flag."""
        self.instance = CuttingInstance(self.node, self.chips, is_partitioning=is_partitioning)
        run(self.instance.look)

    @rule(recovers=st.booleans(), recovers_flags=st.booleans())
    def reboot(self, recovers: bool, recovers_flags: bool) -> None:
        """The Ascend driver makes vNPUs anew, or does not; no container is left."""
        if not recovers_flags:
            for path in self.flags.glob("*"):
                path.unlink()
        if not recovers:
            for path in self.chips.glob("*/*"):
                path.unlink()
            self.by_hand.clear()
        self.node.reboot()
        self._restart()
        run(self.instance.look)
        self.prepared.clear()

    @rule(chip=st.integers(0, 1), template=st.sampled_from(["vir05_1c_8g", "vir10_3c_16g"]))
    def cut_by_hand(self, chip: int, template: str) -> None:
        """Somebody splits a chip; the library gives him the lowest free id."""
        folder = self.chips / f"davinci{chip}"
        ids = range(100 + 16 * chip, 108 + 16 * chip)
        free = [vnpu for vnpu in ids if not (folder / str(vnpu)).exists()]
        if free:
            (folder / str(free[0])).write_text(template)
            self.by_hand[str(free[0])] = template

    @rule(chance=st.randoms(use_true_random=False))
    def destroy_by_hand(self, chance: Any) -> None:
        """Somebody destroys what was cut for a claim; the next look cuts it again."""
        ours = sorted(path for path in self.chips.glob("*/*") if path.name not in self.by_hand)
        if ours:
            chance.choice(ours).unlink()
            run(self.instance.look)

    # --- what must always hold -------------------------------------------------------------------

    @invariant()
    def has_just_the_vnpus_of_claims_and_those_of_others(self) -> None:
        """Each with the template of the partition that it is, and none for two."""
        wanted = dict(self.by_hand)
        for uid in self.node.record_uids():
            for partition in self.node.record(uid).get("pieces", {}).values():
                assert str(partition["vnpu"]) not in wanted
                wanted[str(partition["vnpu"])] = partition["template"]
        assert {path.name: path.read_text() for path in self.chips.glob("*/*")} == wanted

    @invariant()
    def has_the_records_and_files_of_the_model(self) -> None:
        """All ready; the CDI file has the nodes of the partitions."""
        left = {uid for uid in self.node.record_uids() if uid.startswith("vnpu-")}
        assert self.node.record_uids() - left == self.node.cdi_uids() == self.prepared.keys()
        for uid, wish in self.prepared.items():
            record = self.node.record(uid)
            assert record["state"] == "ready"
            assert {given["device"] for given in record["allocation"]} == wish.devices
            spec = json.loads(self.node.cdi_path(uid).read_bytes())
            share = f"-{share_of(uid)}" if wish.is_shared else ""
            assert {device["name"] for device in spec["devices"]} == {
                f"{uid}-{device}" + ("" if device in PARTITIONS else share)
                for device in wish.devices
            }
            for partition in record.get("pieces", {}).values():
                assert f'"/dev/vdavinci{partition["vnpu"]}"' in json.dumps(spec)

    @invariant()
    def gives_nothing_twice(self) -> None:
        """No partition, no chip beside its partitions, no share of a chip that is held whole."""
        for one, two in itertools.combinations(self.prepared.values(), 2):
            assert not one.excludes(two)

    @invariant()
    def shares_the_chips_that_claims_share(self) -> None:
        """And no others."""
        shared = {chip for wish in self.prepared.values() for chip in wish.shared_chips}
        assert self.shared_chips == shared

    def teardown(self) -> None:
        """Everything can be unprepared at last, and leaves what others cut."""
        if self.allocated:
            self.unprepare(list(self.allocated))
            run(self.instance.look)
            assert {path.name for path in self.chips.glob("*/*")} == self.by_hand.keys()
        self.close()

    def _adopt(self, uid: str) -> None:
        """Take over what was left of a call that was not answered."""
        if uid not in self.node.record_uids():
            self.prepared.pop(uid, None)
            return
        found = recorded(self.node.record(uid))
        for wish in filter(None, (self.allocated[uid], self.prepared.get(uid))):
            has_whole = wish.devices != wish.partitions
            if found.devices == wish.devices and (found.way is wish.way or not has_whole):
                self.prepared[uid] = wish
                return
        raise AssertionError(f"no claim wanted {found}")

    def _restart(self) -> None:
        """Start anew."""
        self.instance = CuttingInstance(
            self.node, self.chips, is_partitioning=self.instance.is_partitioning
        )

    def _may_be_unknown(self, wish: Wish, instance: CuttingInstance, held: Sequence[Wish]) -> bool:
        """Whether it wants a partition of a chip that is held by shares, or that is not cut now.

        One that is not cut is not there as a whole either as long as somebody has a partition of
        it.
        """
        by_shares = {chip for one in held if one.is_shared for chip in one.shared_chips}
        if any(CHIPS[partition] & by_shares for partition in wish.partitions):
            return True
        partitions = {
            chip for one in held for partition in one.partitions for chip in CHIPS[partition]
        }
        is_whole_there = all(partitions.isdisjoint(CHIPS[device]) for device in wish.devices)
        return not instance.is_partitioning and (bool(wish.partitions) or not is_whole_there)


Node.TestCase.settings = settings(stateful_step_count=12, max_examples=10, phases=[Phase.generate])
TestNode = Node.TestCase
