"""Looks clear and set share flags that calls could not, and odd answers leave no chip shared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trio.testing import MockClock

from tests import foreign
from tests.claims.flags import FlagFiles
from tests.claims.node import NodeOnDisk, claim, result
from tests.claims.restarted import errors_in
from tests.claims.sharing import Driver, file_of, noted, sharing_driver
from tests.claims.test_cancelled import cancelled_at
from trio_npu_dra.ascend.dcmi.errors import NotSupported, Slow
from trio_npu_dra.ascend.model import EMPTY_BOARD, Chip

SET = "dcmi_set_device_share_enable"


@pytest.fixture
def driver(quick_node: NodeOnDisk) -> Driver:
    """Claims a, b and c have a share of NPU 2 each, d has all of NPU 3."""
    return sharing_driver(quick_node)


async def test_a_flag_that_a_broken_record_needs_stays(driver: Driver) -> None:
    """Its pod may run; a look clears the flag once that has ended."""
    await driver.prepare("a", "b", "d")
    for uid in ("uid-a", "uid-d"):
        (driver.node.records_folder / f"{uid}.json").write_bytes(b"{")
    driver = driver.restarted()
    assert await driver.unprepare("b") == ""
    await driver.look()
    assert driver.flags.on == {2}
    assert await driver.unprepare("a") == ""
    await driver.look()
    assert driver.flags.on == set(), "the other broken record is of another chip"


@pytest.mark.parametrize("recovers", [True, False])
async def test_a_flag_that_a_reboot_brought_back_is_cleared(driver: Driver, recovers: bool) -> None:
    """A node can be set to recover flags; its claims are prepared again, or not."""
    await driver.prepare("a")
    driver.node.reboot()
    if not recovers:
        (driver.flags.folder / "2").unlink()
    driver = driver.restarted()
    await driver.look()
    assert driver.flags.on == set()
    assert driver.flags.changes[1:] == [(2, False)] * recovers
    await driver.prepare("a")
    assert driver.flags.on == {2}


async def test_a_flag_that_was_reset_is_set_again(driver: Driver) -> None:
    """When the Board says so; nothing else is done about the claim, nor anything twice."""
    await driver.prepare("a")
    (driver.flags.folder / "2").unlink()
    file_of(driver).unlink()
    await driver.look()
    assert driver.flags.on == set()
    driver.change_chips(device_share=False)
    await driver.look()
    assert driver.flags.on == {2}
    changes, written = len(driver.flags.changes), file_of(driver).stat().st_ino
    await driver.look()
    assert len(driver.flags.changes) == changes
    assert file_of(driver).stat().st_ino == written


async def test_a_look_does_all_that_it_can(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """A card that fails keeps no other; the log names it. A killed writer's file is removed."""
    driver.node.source.store(claim("e", result("npu-4", share_id="1")))
    left = driver.node.state_folder / ".share-flags.json.0123abcd"
    await driver.prepare("a", "e")
    left.touch()
    driver.node.reboot()
    driver = driver.restarted()
    driver.flags.faults.append(Slow(-8006, SET))
    await driver.look()
    assert driver.flags.on == {2}
    assert not left.exists()
    assert len(errors_in(caplog)) == 1
    assert "the share flag of npu-2 cannot be changed" in errors_in(caplog)[0]


async def test_an_unprepare_does_not_wait_until_the_chips_are_known(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """A look clears the flag later."""
    await driver.prepare("a")
    board = driver.node.board.value
    driver.node.board.set(EMPTY_BOARD)
    driver = driver.restarted()
    await driver.look()
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    assert errors_in(caplog) == []
    driver.node.board.set(board)
    await driver.look()
    assert driver.flags.on == set()
    assert not noted(driver)


@pytest.mark.parametrize("trouble", ["is gone", "does not answer"])
async def test_a_shared_chip_that_does_not_answer_keeps_no_claim(
    driver: Driver, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its flag is cleared once it is there again; the log has no error meanwhile."""
    await driver.prepare("a")
    board = driver.node.board.value
    if trouble == "is gone":
        (gone,) = (chip for chip in board.chips if chip.name == "npu-2")
        gone = replace(gone, gone=True, device_share=False)
        driver.node.board.set(replace(board, chips=(gone,)))
        await driver.look()
        assert errors_in(caplog) == []
    else:
        driver.flags.faults.append(Slow(-8006, SET))
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    driver.node.board.set(board)
    await driver.look()
    assert driver.flags.on == set()


@pytest.mark.parametrize("meanwhile", ["the claim ends", "a look", "the driver restarts"])
async def test_a_flag_is_cleared_on_a_chip_whose_die_id_is_known_since(
    driver: Driver, meanwhile: str
) -> None:
    """Chips are recorded by die id, but one may answer without it at first."""
    await driver.prepare("a")
    board = driver.node.board.value
    known = (replace(chip, uuid=f"DIE-{chip.physical_id}") for chip in board.chips)
    driver.node.board.set(replace(board, chips=tuple(known)))
    if meanwhile == "the driver restarts":
        driver = driver.restarted()
    if meanwhile != "the claim ends":
        await driver.look()
        assert "DIE-2" in file_of(driver).read_text()
        assert driver.ours.value == {"DIE-2"}
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == set()
    assert not noted(driver)


@pytest.mark.parametrize("kind", ["broken", *foreign.KINDS])
async def test_a_damaged_file_costs_no_claim(driver: Driver, kind: str) -> None:
    """The flag stays as it is; the file is set aside."""
    await driver.prepare("a")
    path = file_of(driver)
    path.unlink()
    if kind == "broken":
        path.write_text("{")
    else:
        foreign.put(kind, path)
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    assert foreign.is_there(path.with_name("share-flags.json.aside"))
    assert driver.ours.value == frozenset()


@pytest.mark.parametrize("is_prepare", [True, False])
async def test_a_call_can_be_cancelled_at_each_checkpoint(
    driver: Driver, is_prepare: bool, autojump_clock: MockClock
) -> None:
    """The next call leaves no flag without a claim, and no claim without its flag."""
    del autojump_clock
    step, goes_on = 1, True
    while goes_on:
        if not is_prepare:
            await driver.prepare("a")
        act = driver.prepare if is_prepare else driver.unprepare
        goes_on = await cancelled_at(step, lambda act=act: act("a"))  # type: ignore[misc]
        driver = driver.restarted()
        await driver.look()
        assert driver.flags.on == ({2} if driver.node.cdi_uids() else set())
        assert await driver.unprepare("a") == ""
        assert driver.flags.on == set()
        assert not noted(driver)
        step += 1
    assert step > 5


# --- answers that are not true -------------------------------------------------------------------


async def test_a_flag_that_stays_although_its_reset_worked_is_cleared_later(
    driver: Driver,
) -> None:
    """The claim does not wait for it."""
    await driver.prepare("a")
    driver.flags.idle = 1
    assert await driver.unprepare("a") == ""
    assert driver.flags.on == {2}
    assert noted(driver)
    await driver.look()
    assert driver.flags.on == set()
    assert not noted(driver)


async def test_a_chip_that_has_lost_its_flag_altogether_ends_its_claim(driver: Driver) -> None:
    """Another version of the Ascend driver may not know the call."""

    class Flagless(FlagFiles):
        async def is_set(self, chip: Chip) -> bool:
            del chip
            raise NotSupported(-8255, "dcmi_get_device_share_enable")

    await driver.prepare("a")
    flags = Flagless(driver.flags.folder, driver.node.board)
    assert await Driver(driver.node, flags).unprepare("a") == ""
    assert flags.changes == []
    assert not noted(driver)


async def test_one_answer_that_a_flag_is_not_set_leaves_no_chip_shared(driver: Driver) -> None:
    """The Board says that it is, so it is cleared all the same."""
    await driver.prepare("a")
    driver.change_chips(device_share=True)
    path = driver.flags.folder / "2"
    path.rename(driver.flags.folder.parent / "unseen")

    class Late(FlagFiles):
        async def change(self, chip: Chip, *, is_set: bool) -> None:
            (self.folder.parent / "unseen").rename(self.folder / "2")
            await super().change(chip, is_set=is_set)

    flags = Late(driver.flags.folder, driver.node.board)
    await Driver(driver.node, flags).unprepare("a")
    assert flags.changes == [(2, False)]
    assert flags.on == set()
