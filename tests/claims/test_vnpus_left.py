"""vNPUs of chips that cannot be asked when their claims end are removed later, and are nobody's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dev.rig.waiting import until
from tests.claims.chip_folders import quarter
from tests.claims.cut_node import CutNode
from tests.claims.instance import Instance
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.worker import open_worker
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, Chip
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.ascend.vnpus import Vnpus
from trio_npu_dra.kit.base.observable import Observable

NPU = 0


async def leave(cut: CutNode) -> None:
    """Have the chip leave the list, and its device node with it."""
    cut.control.set_gone(NPU)
    (cut.disk.root / "dev" / f"davinci{NPU}").rename(cut.disk.root / "dev" / "away")
    await until(lambda: _is_away(cut.disk.board.value))


async def come_back(cut: CutNode) -> None:
    """Have it be listed again as it was, with its vNPUs."""
    cut.control.restore(NPU)
    (cut.disk.root / "dev" / "away").rename(cut.disk.root / "dev" / f"davinci{NPU}")
    there = tuple(sorted(cut.templates(NPU)))
    await until(lambda: _is_as_it_was(cut.disk.board.value, there))


def _is_away(board: Board) -> bool:
    """Whether the chip is gone, and cards were listed since."""
    return board.chips[NPU].gone and bool(board.gaps)


def _is_as_it_was(board: Board, vnpus: tuple[int, ...]) -> bool:
    chip = board.chips[NPU]
    return chip.is_listed and tuple(sorted(chip.vnpus)) == vnpus and not board.gaps


def offers_of(cut: CutNode, driver: Instance) -> list[Offer]:
    """What may be had of the chip."""
    every = available(cut.disk.board.value, driver.holds, cut.partitioning.value)
    return [offer for offer in every if offer.chips[0].physical_id == NPU]


def fading(cut: CutNode, moment: str) -> type[Vnpus]:
    """Vnpus of a chip that leaves the list at one moment, once."""
    moments = [moment]

    async def come(now: str) -> None:
        if now in moments:
            moments.remove(now)
            await leave(cut)

    class Fading(Vnpus):
        async def of(self, node: str) -> Mapping[int, str]:
            await come("before it is asked")
            return await super().of(node)

        async def create(self, node: str, template: str, vnpu: int) -> int:
            await come("before it is cut")
            made = await super().create(node, template, vnpu)
            await come("after it was cut")
            return made

        async def destroy(self, node: str, vnpu: int) -> None:
            await come("before it is joined")
            await super().destroy(node, vnpu)
            await come("after it was joined")

        async def seen(self) -> None:
            await come("before it is read")
            await super().seen()

    return Fading


@pytest.mark.parametrize(
    "moment", ["before it is asked", "before it is cut", "after it was cut", "afterwards"]
)
async def test_a_chip_that_leaves_in_a_prepare_and_comes_back_keeps_no_vnpu(
    cut: CutNode, moment: str
) -> None:
    """The claim can be unprepared at once, and the chip is whole once it is there again."""
    cut.store("a", quarter(0))
    driver = cut.driver(vnpus=fading(cut, moment))
    await driver.prepare("a")
    if moment == "afterwards":
        await leave(cut)
    await ends_well(cut, driver)


@pytest.mark.parametrize(
    "moment",
    ["before it is asked", "before it is joined", "after it was joined", "before it is read"],
)
async def test_a_chip_that_leaves_in_an_unprepare_and_comes_back_keeps_no_vnpu(
    cut: CutNode, moment: str
) -> None:
    """As above."""
    await cut.prepared()
    driver = cut.driver(vnpus=fading(cut, moment))
    await driver.unprepare("a")  # which the kubelet repeats if that is an error
    await ends_well(cut, driver)


async def ends_well(cut: CutNode, driver: Instance) -> None:
    """The claim is over, and nothing of it is left once the chip is back."""
    assert await driver.unprepare("a") == ""
    assert "uid-a" not in cut.disk.record_uids()
    assert cut.disk.cdi_uids() == set()
    await come_back(cut)
    by_hand = [
        one for one in offers_of(cut, driver) if one.partition and not one.partition.on_demand
    ]
    assert by_hand == []
    await driver.look()
    assert cut.templates(NPU) == {}
    assert cut.is_clean()
    assert "npu-0" in {offer.name for offer in offers_of(cut, driver)}


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("device", [quarter(0), "npu-0"])
async def test_what_is_left_on_a_chip_goes_before_a_claim_gets_some_of_it(
    cut: CutNode, name: str, device: str
) -> None:
    """At once, and not when the repair comes by; be it the same claim or another one."""
    driver = await cut.prepared()
    await leave(cut)
    await driver.unprepare("a")
    await come_back(cut)

    cut.store(name, device)
    assert await driver.prepare(name) == ""
    assert cut.disk.record_uids() == {f"uid-{name}"}
    assert len(cut.templates(NPU)) == (0 if device == "npu-0" else 1)
    await driver.unprepare(name)
    assert cut.is_clean()


async def test_what_is_left_on_a_chip_that_is_away_keeps_its_claim_from_nothing_else(
    cut: CutNode,
) -> None:
    """The claim may be allocated another chip while the first one is away."""
    driver = await cut.prepared()
    await leave(cut)
    cut.store("a", quarter(0, chip=1))
    assert await driver.prepare("a") == ""
    assert await driver.unprepare("a") == ""
    assert [cut.disk.record(uid)["kind"] for uid in cut.disk.record_uids()] == ["Leftover"]
    assert offers_of(cut, driver) == []
    await come_back(cut)
    await driver.look()
    assert cut.is_clean()


async def test_what_was_left_on_a_die_is_forgotten_when_another_one_takes_its_place(
    cut: CutNode,
) -> None:
    """Its vNPUs have gone with it; one that has their id on the new die is somebody's."""
    driver = await cut.prepared()
    there = cut.templates(NPU)
    await leave(cut)
    await driver.unprepare("a")
    cut.control.replace_die(NPU)
    await come_back(cut)
    await driver.look()
    assert cut.is_clean()
    assert cut.templates(NPU) == there


@pytest.mark.parametrize("has_library", [True, False])
async def test_a_claim_ends_on_a_node_whose_ascend_driver_does_not_start(
    cut: CutNode, has_library: bool
) -> None:
    """Its vNPU is not forgotten, but removed once the NPUs are known again."""
    await cut.prepared()
    there = cut.disk.board
    cut.disk.board = Observable(EMPTY_BOARD)
    async with open_worker() as worker:
        if has_library:
            driver = cut.driver()
        else:  # a kernel came up for which there is no Ascend driver
            cut.disk.reboot()
            driver = replace(cut, worker=worker, dcmi=Dcmi.at(Path("/nowhere"))).driver()
        await driver.look()
        assert await driver.unprepare("a") == ""
    assert len(cut.templates()) == 1
    cut.disk.board = there
    await cut.driver().look()
    assert cut.templates() == {}
    assert cut.is_clean()


@pytest.mark.parametrize(
    ("function", "code"),
    [("dcmi_get_device_info", -8006), ("dcmi_set_destroy_vdevice", -8010)],
)
async def test_a_chip_that_does_not_answer_keeps_no_claim(
    cut: CutNode, function: str, code: int
) -> None:
    """Such as one that hangs; a later look removes its vNPU."""
    driver = await cut.prepared()
    cut.control.set_return_code(function, code, device=NPU)
    assert await driver.unprepare("a") == ""
    assert {hold.holder.kind for hold in driver.holds} == {HolderKind.LEFTOVER}
    cut.control.release(function, device=NPU)
    await driver.look()
    assert cut.is_clean()


async def test_a_claims_vnpu_that_has_no_name_for_a_moment_is_not_cut_twice(cut: CutNode) -> None:
    """A prepare waits until it can be seen whether it is the claim's."""

    class Nameless(Vnpus):
        async def of(self, node: str) -> Mapping[int, str]:
            return dict.fromkeys(await super().of(node), "")

    driver = await cut.prepared()
    (vnpu,) = cut.templates()
    node_file = cut.disk.root / "dev" / f"vdavinci{vnpu}"
    node_file.rename(node_file.with_name("away"))
    refused = await cut.driver(vnpus=Nameless).prepare("a")
    assert f"does not tell the template of vNPU {vnpu}" in refused
    node_file.with_name("away").rename(node_file)
    assert await driver.prepare("a") == ""
    assert cut.templates().keys() == {vnpu}


async def test_a_claims_vnpu_is_removed_from_a_chip_that_was_numbered_anew(cut: CutNode) -> None:
    """The chip is known by its die id; nothing of the one with its old number is touched."""
    await cut.prepared()
    (vnpu,) = cut.templates()
    await until(lambda: cut.disk.board.value.chips[0].vnpus == (vnpu,))
    board = cut.disk.board.value
    one, other = board.chips[:2]
    swapped = Observable(
        replace(
            board,
            chips=(
                replace(other, physical_id=0),
                replace(one, physical_id=1),
                *board.chips[2:],
            ),
        )
    )
    removed = []

    class Renumbered(Vnpus):
        def place_of(self, chip: Chip) -> str | None:
            self._board = swapped
            return super().place_of(chip)

        async def destroy(self, node: str, vnpu: int) -> None:
            await super().destroy(node, vnpu)
            removed.append((node, vnpu))
            self._board = now

    now = cut.disk.board
    assert await cut.driver(vnpus=Renumbered).unprepare("a") == ""
    assert removed == [("/dev/davinci1", vnpu)]
    assert cut.templates() == {}
    assert cut.is_clean()
