"""vNPUs of chips that cannot be asked when their claims end are removed later, and are nobody's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from dev.rig.waiting import until
from tests.claims.cut_node import CutDriver, CutNode, cut_node, quarter
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.ascend.dcmi.worker import open_worker
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, Chip
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.ascend.vnpus import Vnpus
from trio_npu_dra.kit.base.observable import Observable

NPU = 0


@pytest.fixture
async def node(tmp_path: Path, simulator: Path) -> AsyncIterator[CutNode]:
    """A server with eight 910B4, which are cut."""
    async with cut_node(tmp_path / "node", simulator) as node:
        with trio.fail_after(30):
            yield node


async def leave(node: CutNode) -> None:
    """Have the chip leave the list, and its device node with it."""
    node.control.set_gone(NPU)
    (node.disk.root / "dev" / f"davinci{NPU}").rename(node.disk.root / "dev" / "away")
    await until(lambda: _is_away(node.disk.board.value))


async def come_back(node: CutNode) -> None:
    """Have it be listed again as it was, with its vNPUs."""
    node.control.restore(NPU)
    (node.disk.root / "dev" / "away").rename(node.disk.root / "dev" / f"davinci{NPU}")
    there = tuple(sorted(node.templates(NPU)))
    await until(lambda: _is_as_it_was(node.disk.board.value, there))


def _is_away(board: Board) -> bool:
    """Whether the chip is gone, and cards were listed since."""
    return board.chips[NPU].gone and bool(board.gaps)


def _is_as_it_was(board: Board, vnpus: tuple[int, ...]) -> bool:
    chip = board.chips[NPU]
    return chip.is_listed and tuple(sorted(chip.vnpus)) == vnpus and not board.gaps


def offers_of(node: CutNode, driver: CutDriver) -> list[Offer]:
    """What may be had of the chip."""
    every = available(node.disk.board.value, driver.holds, node.partitioning.value)
    return [offer for offer in every if offer.chips[0].physical_id == NPU]


def fading(node: CutNode, moment: str) -> type[Vnpus]:
    """Vnpus of a chip that leaves the list at one moment, once."""
    moments = [moment]

    async def come(now: str) -> None:
        if now in moments:
            moments.remove(now)
            await leave(node)

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
    node: CutNode, moment: str
) -> None:
    """The claim can be unprepared at once, and the chip is whole once it is there again."""
    node.store("a", quarter(0))
    driver = node.driver(vnpus=fading(node, moment))
    await driver.prepare("a")
    if moment == "afterwards":
        await leave(node)
    await ends_well(node, driver)


@pytest.mark.parametrize(
    "moment",
    ["before it is asked", "before it is joined", "after it was joined", "before it is read"],
)
async def test_a_chip_that_leaves_in_an_unprepare_and_comes_back_keeps_no_vnpu(
    node: CutNode, moment: str
) -> None:
    """As above."""
    node.store("a", quarter(0))
    assert await node.driver().prepare("a") == {"a": ""}
    driver = node.driver(vnpus=fading(node, moment))
    await driver.unprepare("a")  # which the kubelet repeats if that is an error
    await ends_well(node, driver)


async def ends_well(node: CutNode, driver: CutDriver) -> None:
    """The claim is over, and nothing of it is left once the chip is back."""
    assert await driver.unprepare("a") == {"a": ""}
    assert "uid-a" not in node.disk.record_uids()
    assert node.disk.cdi_uids() == set()
    await come_back(node)
    by_hand = [
        one for one in offers_of(node, driver) if one.partition and not one.partition.on_demand
    ]
    assert by_hand == []
    await driver.look()
    assert node.templates(NPU) == {}
    assert node.is_clean()
    assert "npu-0" in {offer.name for offer in offers_of(node, driver)}


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("device", [quarter(0), "npu-0"])
async def test_what_is_left_on_a_chip_goes_before_a_claim_gets_some_of_it(
    node: CutNode, name: str, device: str
) -> None:
    """At once, and not when the repair comes by; be it the same claim or another one."""
    node.store("a", quarter(0))
    driver = node.driver()
    await driver.prepare("a")
    await leave(node)
    await driver.unprepare("a")
    await come_back(node)

    node.store(name, device)
    assert await driver.prepare(name) == {name: ""}
    assert node.disk.record_uids() == {f"uid-{name}"}
    assert len(node.templates(NPU)) == (0 if device == "npu-0" else 1)
    await driver.unprepare(name)
    assert node.is_clean()


async def test_what_is_left_on_a_chip_that_is_away_keeps_its_claim_from_nothing_else(
    node: CutNode,
) -> None:
    """The claim may be allocated another chip while the first one is away."""
    node.store("a", quarter(0))
    driver = node.driver()
    await driver.prepare("a")
    await leave(node)
    node.store("a", quarter(0, chip=1))
    assert await driver.prepare("a") == {"a": ""}
    assert await driver.unprepare("a") == {"a": ""}
    assert [node.disk.record(uid)["kind"] for uid in node.disk.record_uids()] == ["Leftover"]
    assert offers_of(node, driver) == []
    await come_back(node)
    await driver.look()
    assert node.is_clean()


async def test_what_was_left_on_a_die_is_forgotten_when_another_one_takes_its_place(
    node: CutNode,
) -> None:
    """Its vNPUs have gone with it; one that has their id on the new die is somebody's."""
    node.store("a", quarter(0))
    driver = node.driver()
    await driver.prepare("a")
    there = node.templates(NPU)
    await leave(node)
    await driver.unprepare("a")
    node.control.replace_die(NPU)
    await come_back(node)
    await driver.look()
    assert node.is_clean()
    assert node.templates(NPU) == there


async def test_a_claim_ends_on_a_node_whose_ascend_driver_does_not_start(node: CutNode) -> None:
    """Its vNPU is not forgotten: it is removed once the NPUs are known again."""
    node.store("a", quarter(0))
    await node.driver().prepare("a")
    board = node.disk.board
    node.disk.board = Observable(EMPTY_BOARD)  # what an instance knows whose library never starts
    driver = node.driver()
    await driver.look()
    assert await driver.unprepare("a") == {"a": ""}
    assert len(node.templates(NPU)) == 1
    node.disk.board = board
    await node.driver().look()
    assert node.templates(NPU) == {}
    assert node.is_clean()


async def test_a_claim_ends_on_a_node_without_a_library(node: CutNode) -> None:
    """A kernel came up for which there is no Ascend driver."""
    node.store("a", quarter(0))
    await node.driver().prepare("a")
    node.disk.reboot()
    there, node.disk.board = node.disk.board, Observable(EMPTY_BOARD)
    async with open_worker() as worker:
        driver = replace(node, worker=worker, dcmi=None).driver()
        await driver.look()
        assert await driver.unprepare("a") == {"a": ""}
    node.disk.board = there
    await node.driver().look()
    assert node.templates(NPU) == {}
    assert node.is_clean()


@pytest.mark.parametrize(
    ("function", "code"),
    [("dcmi_get_device_info", -8006), ("dcmi_set_destroy_vdevice", -8010)],
)
async def test_a_chip_that_does_not_answer_keeps_no_claim(
    node: CutNode, function: str, code: int
) -> None:
    """Such as one that hangs; who looks for it later finds it with its vNPU."""
    node.store("a", quarter(0))
    driver = node.driver()
    await driver.prepare("a")
    node.control.set_return_code(function, code, device=NPU)
    assert await driver.unprepare("a") == {"a": ""}
    assert {hold.holder.kind for hold in driver.holds} == {HolderKind.LEFTOVER}
    node.control.release(function, device=NPU)
    await driver.look()
    assert node.is_clean()


async def test_a_vnpu_that_stays_although_its_removal_worked_is_removed_later(
    node: CutNode,
) -> None:
    """The library says so; until it is true, the vNPU is offered to nobody."""

    class Idle(Vnpus):
        async def destroy(self, node: str, vnpu: int) -> None:
            del node, vnpu

    node.store("a", quarter(0))
    driver = node.driver(vnpus=Idle)
    assert await driver.prepare("a") == {"a": ""}
    assert await driver.unprepare("a") == {"a": ""}
    assert [hold.holder.kind for hold in driver.holds] == [HolderKind.LEFTOVER]
    await node.driver().look()
    assert node.templates() == {}
    assert node.is_clean()


@pytest.mark.parametrize("template", [None, "", "vir0"])
async def test_one_odd_answer_about_a_claims_vnpu_leaves_it_to_nobody(
    node: CutNode, template: str | None
) -> None:
    """Be it that it is not there, without a name, or another: it is removed later."""

    class Odd(Vnpus):
        is_odd = False

        async def of(self, node: str) -> Mapping[int, str]:
            found = await super().of(node)
            if not Odd.is_odd:
                return found
            Odd.is_odd = False
            return {} if template is None else dict.fromkeys(found, template)

    node.store("a", quarter(0))
    driver = node.driver(vnpus=Odd)
    assert await driver.prepare("a") == {"a": ""}
    Odd.is_odd = True
    assert await driver.unprepare("a") == {"a": ""}
    assert [hold.holder.kind for hold in driver.holds] == [HolderKind.LEFTOVER]
    await driver.look()
    assert node.templates() == {}
    assert node.is_clean()


async def test_a_claims_vnpu_that_has_no_name_for_a_moment_is_not_cut_twice(node: CutNode) -> None:
    """A prepare waits until it can be seen whether it is the claim's."""

    class Nameless(Vnpus):
        async def of(self, node: str) -> Mapping[int, str]:
            return dict.fromkeys(await super().of(node), "")

    node.store("a", quarter(0))
    driver = node.driver()
    assert await driver.prepare("a") == {"a": ""}
    (vnpu,) = node.templates()
    node_file = node.disk.root / "dev" / f"vdavinci{vnpu}"
    node_file.rename(node_file.with_name("away"))
    refused = (await node.driver(vnpus=Nameless).prepare("a"))["a"]
    assert f"does not tell the template of vNPU {vnpu}" in refused
    node_file.with_name("away").rename(node_file)
    assert await driver.prepare("a") == {"a": ""}
    assert node.templates().keys() == {vnpu}


async def test_a_claims_vnpu_is_removed_from_a_chip_that_was_numbered_anew(node: CutNode) -> None:
    """The chip is known by its die id; nothing of the one with its old number is touched."""
    node.store("a", quarter(0))
    driver = node.driver()
    assert await driver.prepare("a") == {"a": ""}
    (vnpu,) = node.templates()
    await until(lambda: node.disk.board.value.chips[0].vnpus == (vnpu,))
    board = node.disk.board.value
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

    now = node.disk.board
    assert await node.driver(vnpus=Renumbered).unprepare("a") == {"a": ""}
    assert removed == [("/dev/davinci1", vnpu)]
    assert node.templates() == {}
    assert node.is_clean()
