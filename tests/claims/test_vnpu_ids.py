"""Records know the vNPUs of claims, and no id is of two claims, whatever breaks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

from tests.claims.chip_folders import Chips, FolderNode, quarter
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.ascend.dcmi.errors import DcmiError

NO_ANSWER = DcmiError(-8011, "dcmi_create_vdevice", "no answer could be received")


class Mute(Chips):
    """Vnpus of a chip that answers nothing any more once it was cut, until it is asked to."""

    is_mute = False

    async def create(self, node: str, template: str, vnpu: int) -> int:
        """Cut, and fall silent."""
        await super().create(node, template, vnpu)
        Mute.is_mute = True
        raise NO_ANSWER

    async def of(self, node: str) -> Mapping[int, str]:
        """The templates, or no answer."""
        if Mute.is_mute:
            raise NO_ANSWER
        return await super().of(node)


async def test_an_id_stays_noted_while_nobody_can_tell_whether_it_was_made(
    folders: FolderNode,
) -> None:
    """So that what the chip made is removed with its claim."""
    folders.store("a", quarter(0))
    driver = folders.driver(vnpus=Mute)
    error = await driver.prepare("a")
    assert error.startswith("npu-0-vir05-1c-8g-0 cannot be cut off npu-0: ")
    assert "no answer could be received" in error
    assert folders.disk.record("uid-a")["pieces"][quarter(0)]["vnpu"] is not None
    Mute.is_mute = False
    assert len(folders.templates()) == 1
    await folders.end(driver)


class Speechless(Chips):
    """Vnpus of chips whose answer is lost after each folders."""

    async def create(self, node: str, template: str, vnpu: int) -> int:
        """Cut, and fail."""
        await super().create(node, template, vnpu)
        raise NO_ANSWER


@pytest.mark.parametrize("then", ["unprepared", "prepared again"])
async def test_a_create_whose_answer_is_lost_leaves_nothing_that_nobody_knows(
    folders: FolderNode, then: str
) -> None:
    """What it made is the claim's, and is removed with it."""
    folders.store("a", quarter(0))
    driver = folders.driver(vnpus=Speechless)
    assert "no answer could be received" in await driver.prepare("a")
    (made,) = folders.templates()
    if then == "prepared again":
        assert await driver.prepare("a") == ""
        assert [*folders.templates()] == [made]
    await folders.end(driver)


async def test_the_id_of_a_lost_partition_is_given_to_no_other_claim(folders: FolderNode) -> None:
    """The claim that lost one of two gets it again under that id."""
    folders.store("a", quarter(0), quarter(2))
    folders.store("b", quarter(1))
    driver = folders.driver()
    await driver.prepare("a")
    before = folders.templates().keys()
    lost = min(before)
    (folders.path() / str(lost)).unlink()
    assert await driver.prepare("b") == ""
    assert lost not in folders.templates()
    await driver.look()
    assert before < folders.templates().keys()
    assert len(folders.templates()) == 3


# --- records that break --------------------------------------------------------------------------


async def test_a_vnpu_whose_record_breaks_stays_on_its_chip(folders: FolderNode) -> None:
    """Nobody knows any more who cut it: it counts as created manually."""
    await folders.prepared()
    before = folders.templates()
    (folders.disk.records_folder / "uid-a.json").write_bytes(b"")
    driver = folders.driver()
    await driver.look()
    assert await driver.unprepare("a") == ""
    assert (folders.disk.record_uids(), folders.disk.cdi_uids()) == (set(), set())
    assert folders.templates() == before


class Misnaming(Chips):
    """Vnpus of a chip that calls what it cuts by a wrong id.

    Attributes:
        says: That id.
    """

    says = 0

    async def create(self, node: str, template: str, vnpu: int) -> int:
        """Cut, and name another."""
        await super().create(node, template, vnpu)
        return Misnaming.says


@pytest.mark.parametrize("is_anothers", [True, False])
async def test_a_claim_has_the_vnpu_that_was_cut_for_it_whatever_the_library_calls_it(
    folders: FolderNode, *, is_anothers: bool
) -> None:
    """Be the id that it returns that of another claim's vNPU, or of none."""
    folders.store("a", quarter(0))
    folders.store("b", quarter(1))
    driver = folders.driver()
    assert await driver.prepare("a") == ""
    (of_a,) = folders.templates()
    Misnaming.says = of_a if is_anothers else 149
    driver = folders.driver(vnpus=Misnaming)
    assert await driver.prepare("b") == ""
    (of_b,) = folders.templates().keys() - {of_a}
    assert folders.disk.record("uid-b")["pieces"][quarter(1)]["vnpu"] == of_b
    assert await driver.unprepare("b") == ""
    assert folders.templates().keys() == {of_a}
    assert await driver.unprepare("a") == ""
    assert folders.is_clean()


async def test_the_id_that_the_library_chose_is_recorded(folders: FolderNode) -> None:
    """It may have another id for the vNPU than the wanted one."""

    class Choosing(Chips):
        async def create(self, node: str, template: str, vnpu: int) -> int:
            del vnpu
            return await super().create(node, template, 100)

    folders.store("a", quarter(0))
    driver = folders.driver(vnpus=Choosing)
    assert await driver.prepare("a") == ""
    assert folders.disk.record("uid-a")["pieces"][quarter(0)]["vnpu"] == 100
    await folders.end(driver)


async def test_a_claim_gets_no_vnpu_of_another_when_none_was_cut(folders: FolderNode) -> None:
    """The library says that it cut one, and names that of another claim."""

    class Idle(Chips):
        async def create(self, node: str, template: str, vnpu: int) -> int:
            del node, template, vnpu
            return of_a

    folders.store("a", quarter(0))
    folders.store("b", quarter(1))
    driver = folders.driver()
    assert await driver.prepare("a") == ""
    (of_a,) = folders.templates()
    refused = await folders.driver(vnpus=Idle).prepare("b")
    assert "the Ascend driver says that it cut vNPU" in refused
    assert await driver.prepare("b") == ""
    assert len(folders.templates()) == 2
    assert await driver.unprepare("b", "a") == ""
    assert folders.templates() == {}
    assert folders.is_clean()


# --- vNPUs that may be left ----------------------------------------------------------------------


class Failing(Chips):
    """Vnpus of a chip that removes nothing, although it says that it does."""

    async def destroy(self, node: str, vnpu: int) -> None:
        """Do nothing."""


def answering_once(template: str | None) -> type[Chips]:
    """Vnpus of a chip that lists all its vNPUs with *template* once, or lists none."""
    odd = [template]

    class Odd(Chips):
        async def of(self, node: str) -> Mapping[int, str]:
            found = await super().of(node)
            if not odd or not found:
                return found
            name = odd.pop()
            return {} if name is None else dict.fromkeys(found, name)

    return Odd


@pytest.mark.parametrize("vnpus", [Failing, *map(answering_once, (None, "", "vir0"))])
async def test_a_vnpu_that_may_still_be_there_is_removed_later(
    folders: FolderNode, vnpus: type[Chips]
) -> None:
    """Its claim ends, and no other claim is offered the vNPU meanwhile."""
    await folders.prepared()
    driver = folders.driver(vnpus=vnpus)
    assert await driver.unprepare("a") == ""
    assert [hold.holder.kind for hold in driver.holds] == [HolderKind.LEFTOVER]
    await folders.driver().look()
    assert folders.templates() == {}
    assert folders.is_clean()


class Unread(Chips):
    """Vnpus of a node whose Board is not read any more."""

    async def seen(self) -> None:
        """Wait for ever."""
        await trio.sleep_forever()


async def test_a_vnpu_is_left_while_the_board_is_not_read(
    folders: FolderNode, autojump_clock: MockClock
) -> None:
    """Its claim ends after seconds; without its record the Board might offer the vNPU."""
    del autojump_clock
    await folders.prepared()
    driver = folders.driver(vnpus=Unread)
    assert await driver.unprepare("a") == ""
    assert [hold.holder.kind for hold in driver.holds] == [HolderKind.LEFTOVER]
    assert {hold.holder.name for hold in driver.holds} == {"a"}
    driver = folders.driver()
    await driver.look()
    assert driver.holds == ()
    assert folders.is_clean()
