"""Whatever happens to a node whose NPUs are cut, no piece is without a claim and no claim without.

The chips are folders here, with a file for each vNPU that has its template: so a death can be tried
between any two changes of records, CDI files and vNPUs.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import trio
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from tests.claims.node import AT_ONCE, NodeOnDisk, claim, npu, result
from tests.claims.test_cancelled import cancelled_at
from tests.reliability.disk import Disk
from tests.reliability.instance import refs, run
from trio_npu_dra.claims.repair import Repair
from trio_npu_dra.claims.vnpu_step import VnpuStep
from trio_npu_dra.errors import Busy, DeviceLost
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import Board, Chip
from trio_npu_dra.npu.offers import Cutting
from trio_npu_dra.npu.vnpus import Vnpus
from trio_npu_dra.observable import Observable

DEVICES = (
    *(f"npu-0-vir05-1c-8g-{number}" for number in range(3)),
    *("npu-0-vir10-3c-16g-0", "npu-1-vir05-1c-8g-0", "npu-0", "npu-1"),
)
instances = st.integers(0, 1)
some_devices = st.sets(st.sampled_from(DEVICES), min_size=1, max_size=3).filter(
    lambda names: (
        not any(one != two and two.startswith(f"{one}-") for one in names for two in names)
    )
)


def cuttable(number: int) -> Chip:
    """A 910B4 with all facts that count."""
    return replace(npu(number), board_id=0x41, ai_cores=20, memory_bytes=32 << 30)


@dataclass(frozen=True)
class Chips:
    """Chips that are folders; stands for `npu.vnpus.Vnpus`."""

    folder: Path

    async def of(self, node: str) -> Mapping[int, str]:
        """The templates, by id."""
        await trio.lowlevel.checkpoint()
        return {int(path.name): path.read_text() for path in self._files(node)}

    async def create(self, node: str, template: str, vnpu: int) -> int:
        """Make one, which nobody may have made."""
        await trio.lowlevel.checkpoint()
        path = self.folder / Path(node).name / str(vnpu)
        if path.exists():
            raise Busy(-8020, "dcmi_create_vdevice")
        path.write_text(template)
        await trio.lowlevel.checkpoint()
        return vnpu

    async def destroy(self, node: str, vnpu: int) -> None:
        """Remove one."""
        await trio.lowlevel.checkpoint()
        try:
            (self.folder / Path(node).name / str(vnpu)).unlink()
        except FileNotFoundError:
            raise DeviceLost(-8007, "dcmi_set_destroy_vdevice") from None
        await trio.lowlevel.checkpoint()

    async def seen(self) -> None:
        """No Board is kept up to date."""
        await trio.lowlevel.checkpoint()

    def is_gone(self, chip: Chip) -> bool:
        """None ever is."""
        del chip
        return False

    def _files(self, node: str) -> list[Path]:
        return list((self.folder / Path(node).name).iterdir())


@dataclass(frozen=True, slots=True, kw_only=True)
class CutHost(Host):
    """A host on which a vNPU has a device node as long as it has its file."""

    chips: Path

    def has_node(self, name: str) -> bool:
        """Whether there is one."""
        if name.startswith("vdavinci"):
            return any(self.chips.glob(f"*/{name.removeprefix('vdavinci')}"))
        return Host.has_node(self, name)


class Instance:
    """One process of the driver."""

    def __init__(self, node: NodeOnDisk, chips: Path) -> None:
        ledger, cdi = node.ledger(), node.cdi()
        host = CutHost(host_root=node.host.host_root, dev_root=node.host.dev_root, chips=chips)
        vnpus = cast("Vnpus", Chips(chips))
        step = VnpuStep(ledger=ledger, cdi=cdi, vnpus=vnpus, host=host)
        self.repair = Repair(ledger, cdi, (step,))
        self.claims = node.start(
            ledger=ledger,
            cdi=cdi,
            steps=(step,),
            patience=AT_ONCE,
            cutting=Observable(Cutting(is_on=True)),
        )

    async def look(self) -> None:
        """Look as a start does."""
        await self.repair.look(is_first=True)


class Node(RuleBasedStateMachine):
    """A node with two instances of the driver."""

    uids = Bundle("uids")

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        root = Path(self._folder.name)
        self.node = NodeOnDisk(root / "node")
        self.node.board.set(Board(chips=(cuttable(0), cuttable(1))))
        self.chips = root / "chips"
        for number in range(2):
            (self.chips / f"davinci{number}").mkdir(parents=True)
        self.disk = Disk(self.node.state_folder, self.node.cdi_root, self.chips)
        self.allocated: dict[str, set[str]] = {}
        self.prepared: dict[str, set[str]] = {}
        self.by_hand: dict[str, str] = {}

    @initialize(target=uids)
    def start(self) -> Any:
        """Both instances come up, and there are claims for one piece."""
        self.instances = [Instance(self.node, self.chips) for _ in range(2)]
        return multiple(self.allocate({DEVICES[0]}), self.allocate({DEVICES[0]}))

    @rule(target=uids, devices=some_devices)
    def allocate(self, devices: set[str]) -> str:
        """A claim gets devices, also such as do not fit: the scheduler may know better."""
        uid = f"uid-{len(self.allocated)}"
        self._allocate(uid, devices)
        return uid

    @rule(uid=uids, devices=some_devices)
    def allocate_anew(self, uid: str, devices: set[str]) -> None:
        """A claim gets others: no pod uses it any more."""
        self._allocate(uid, devices)

    def _allocate(self, uid: str, devices: set[str]) -> None:
        name = uid.removeprefix("uid-")
        self.node.source.store(claim(name, *(result(one) for one in sorted(devices))))
        self.allocated[uid] = devices

    # --- what the kubelet does -------------------------------------------------------------------

    @rule(number=instances, uids=st.lists(uids, min_size=1, max_size=3, unique=True))
    def prepare(self, number: int, uids: list[str]) -> None:
        """Whoever has what it needs is prepared; whoever keeps it from another one is named."""
        answers = run(lambda: self.instances[number].claims.prepare(refs(uids)))
        for uid, answer in answers.items():
            if answer.error:
                assert "held by claim" in answer.error
                if self.prepared.get(uid) != self.allocated[uid]:
                    self.prepared.pop(uid, None)
            else:
                self.prepared[uid] = self.allocated[uid]

    @rule(number=instances, uids=st.lists(uids, min_size=1, max_size=3, unique=True))
    def unprepare(self, number: int, uids: list[str]) -> None:
        """Always possible."""
        answers = run(lambda: self.instances[number].claims.unprepare(refs(uids)))
        assert answers == dict.fromkeys(uids, "")
        for uid in uids:
            self.prepared.pop(uid, None)

    @rule(number=instances, uid=uids, is_prepare=st.booleans(), step=st.integers(1, 30))
    def cancel(self, number: int, uid: str, is_prepare: bool, step: int) -> None:
        """The kubelet hangs up, and the next look settles what is between."""
        claims = self.instances[number].claims
        call = claims.prepare if is_prepare else claims.unprepare
        run(lambda: cancelled_at(step, lambda: call(refs([uid]))))
        run(self.instances[number].look)
        self._adopt(uid)

    # --- what happens to the node ----------------------------------------------------------------

    @rule(number=instances, uid=uids, is_prepare=st.booleans(), moment=st.integers(0, 60))
    def die(self, number: int, uid: str, is_prepare: bool, moment: int) -> None:
        """An instance is killed between any two changes, and comes back."""
        claims = self.instances[number].claims
        call = claims.prepare if is_prepare else claims.unprepare
        with self.disk.states() as states:
            run(lambda: call(refs([uid])))
        self.disk.restore(states[moment % len(states)])
        self.instances = [Instance(self.node, self.chips) for _ in range(2)]
        run(self.instances[number].look)
        self._adopt(uid)

    @rule(recovers=st.booleans())
    def reboot(self, recovers: bool) -> None:
        """The Ascend driver makes vNPUs anew, or does not; no container is left."""
        if not recovers:
            for path in self.chips.glob("*/*"):
                path.unlink()
            self.by_hand.clear()
        self.node.reboot()
        self.instances = [Instance(self.node, self.chips) for _ in range(2)]
        run(self.instances[0].look)
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

    @rule(number=instances, chance=st.randoms(use_true_random=False))
    def destroy_by_hand(self, number: int, chance: Any) -> None:
        """Somebody destroys what was cut for a claim; the next look cuts it again."""
        ours = sorted(path for path in self.chips.glob("*/*") if path.name not in self.by_hand)
        if ours:
            chance.choice(ours).unlink()
            run(self.instances[number].look)

    # --- what must always hold -------------------------------------------------------------------

    @invariant()
    def has_just_the_vnpus_of_claims_and_those_of_others(self) -> None:
        """Each with the template of the piece that it is, and none for two."""
        wanted = dict(self.by_hand)
        for uid in self.node.record_uids():
            for piece in self.node.record(uid)["pieces"].values():
                assert str(piece["vnpu"]) not in wanted
                wanted[str(piece["vnpu"])] = piece["template"]
        assert {path.name: path.read_text() for path in self.chips.glob("*/*")} == wanted

    @invariant()
    def has_the_records_and_files_of_the_model(self) -> None:
        """All ready; the CDI file has the nodes of the pieces."""
        assert self.node.record_uids() == self.node.cdi_uids() == self.prepared.keys()
        for uid, devices in self.prepared.items():
            record = self.node.record(uid)
            assert record["state"] == "ready"
            assert {given["device"] for given in record["allocation"]} == devices
            content = json.dumps(json.loads(self.node.cdi_path(uid).read_bytes()))
            for piece in record["pieces"].values():
                assert f'"/dev/vdavinci{piece["vnpu"]}"' in content

    @invariant()
    def gives_nothing_twice(self) -> None:
        """Neither a piece, nor a chip beside one of its pieces."""
        given = [device for devices in self.prepared.values() for device in devices]
        assert len(given) == len(set(given))
        assert not any(two.startswith(f"{one}-") for one in given for two in given)

    @invariant()
    def has_no_lock_without_a_claim(self) -> None:
        """Those of chips are held for moments."""
        locks = {path.stem for path in (self.node.state_folder / "steps").glob("*.lock")}
        assert locks <= self.prepared.keys()

    def teardown(self) -> None:
        """Everything can be unprepared at last, and leaves what others cut."""
        if self.allocated:
            self.unprepare(0, list(self.allocated))
            assert {path.name for path in self.chips.glob("*/*")} == self.by_hand.keys()
        self._folder.cleanup()

    def _adopt(self, uid: str) -> None:
        """Take over what was left of a call that was not answered."""
        if uid not in self.node.record_uids():
            self.prepared.pop(uid, None)
            return
        given = {each["device"] for each in self.node.record(uid)["allocation"]}
        assert given in (self.allocated[uid], self.prepared.get(uid))
        self.prepared[uid] = given


Node.TestCase.settings = settings(stateful_step_count=12, max_examples=10, phases=[Phase.generate])
TestNode = Node.TestCase
