"""Which vNPUs are ours is never forgotten, and no id is of two claims, whatever breaks."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.claims.cut_node import CutNode, quarter
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.vnpus import Vnpus

NO_ANSWER = DcmiError(-8011, "dcmi_create_vdevice", "no answer could be received")


class Mute(Vnpus):
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


async def test_an_id_stays_noted_while_nobody_can_tell_whether_it_was_made(cut: CutNode) -> None:
    """So that what the chip made is removed with its claim."""
    cut.store("a", quarter(0))
    driver = cut.driver(vnpus=Mute)
    assert "no answer could be received" in await driver.prepare("a")
    assert cut.disk.record("uid-a")["pieces"][quarter(0)]["vnpu"] is not None
    Mute.is_mute = False
    assert len(cut.templates()) == 1
    await cut.end(driver)


async def test_the_id_of_a_lost_partition_is_given_to_no_other_claim(cut: CutNode) -> None:
    """The claim that lost it gets it again under that id."""
    cut.store("a", quarter(0))
    cut.store("b", quarter(1))
    driver = cut.driver()
    await driver.prepare("a")
    (lost,) = cut.templates()
    cut.control.destroy_vnpu(0, lost)
    assert await driver.prepare("b") == ""
    assert lost not in cut.templates()
    await driver.look()
    assert len(cut.templates()) == 2
    assert lost in cut.templates()


# --- records that break --------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["allocation", "chips", "edits", "another partition"])
async def test_a_vnpu_is_removed_whatever_else_its_record_says(cut: CutNode, part: str) -> None:
    """A newer version may say it in other words."""
    await cut.prepared()
    record = cut.disk.record("uid-a")
    if part == "another partition":
        record["pieces"]["npu-1-new"] = "of a kind that is not known"
    else:
        record[part] = "in words that are not known"
    (cut.disk.records_folder / "uid-a.json").write_text(json.dumps(record))
    await cut.end()


@pytest.mark.parametrize("then", ["prepared again", "unprepared"])
async def test_a_record_that_breaks_costs_no_vnpu(cut: CutNode, then: str) -> None:
    """It is there twice: the claim keeps what its pod uses, and gives that back."""
    await cut.prepared()
    before = cut.templates()
    (cut.disk.records_folder / "uid-a.json").write_bytes(b"")
    driver = cut.driver()
    await driver.look()
    if then == "prepared again":
        assert await driver.prepare("a") == ""
        assert cut.templates() == before
    await cut.end(driver)


async def test_a_record_whose_copy_was_removed_gets_another(cut: CutNode) -> None:
    """A foreign file in the place of their folder is set aside."""
    await cut.prepared()
    copies = cut.disk.state_folder / "copies"
    (copies / "uid-a.json").unlink()
    copies.rmdir()
    copies.write_text("not a folder")
    await cut.driver().look()
    (cut.disk.records_folder / "uid-a.json").write_bytes(b"")
    assert await cut.driver().unprepare("a") == ""
    assert cut.templates() == {}


async def test_a_record_that_breaks_is_not_taken_from_what_its_claim_had_before(
    cut: CutNode,
) -> None:
    """A copy of that would free what it has now."""
    await cut.prepared()
    cut.store("a", "npu-1")
    assert await cut.driver().prepare("a") == ""
    (cut.disk.records_folder / "uid-a.json").write_bytes(b"")
    cut.store("b", "npu-1")
    assert "may be in use by the claim with UID uid-a" in await cut.driver().prepare("b")


async def test_a_copy_without_a_record_brings_no_claim_back(cut: CutNode) -> None:
    """It was left by a death in an unprepare."""
    await cut.prepared()
    content = (cut.disk.state_folder / "copies" / "uid-a.json").read_bytes()
    assert await cut.driver().unprepare("a") == ""
    (cut.disk.state_folder / "copies" / "uid-a.json").write_bytes(content)
    driver = cut.driver()
    await driver.look()
    assert driver.holds == ()
    assert cut.is_clean()


def spoiling(cut: CutNode) -> type[Vnpus]:
    """Vnpus beside which the record of claim a breaks, with its copy, before another is written."""

    async def spoil() -> None:
        for folder in (cut.disk.records_folder, cut.disk.state_folder / "copies"):
            (folder / "uid-a.json").write_bytes(b"")
        cut.store("other", "npu-7")
        assert await cut.driver().prepare("other") == ""

    class Spoiling(Vnpus):
        async def create(self, node: str, template: str, vnpu: int) -> int:
            del template, vnpu
            await spoil()
            raise DcmiError(-8005, f"dcmi_create_vdevice of {node}")

        async def destroy(self, node: str, vnpu: int) -> None:
            await super().destroy(node, vnpu)
            await spoil()

    return Spoiling


@pytest.mark.parametrize("call", ["prepare", "unprepare"])
async def test_a_record_that_breaks_in_a_call_is_that_claims_error(cut: CutNode, call: str) -> None:
    """Both it and its copy: the daemon lives on."""
    cut.store("a", quarter(0))
    if call == "prepare":
        answer = await cut.driver(vnpus=spoiling(cut)).prepare("a")
    else:
        await cut.driver().prepare("a")
        answer = await cut.driver(vnpus=spoiling(cut)).unprepare("a")
    assert "the record of uid-a cannot be read any more" in answer


class Misnaming(Vnpus):
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
    cut: CutNode, *, is_anothers: bool
) -> None:
    """Be the id that it returns that of another claim's vNPU, or of none."""
    cut.store("a", quarter(0))
    cut.store("b", quarter(1))
    driver = cut.driver()
    assert await driver.prepare("a") == ""
    (of_a,) = cut.templates()
    Misnaming.says = of_a if is_anothers else 149
    assert await cut.driver(vnpus=Misnaming).prepare("b") == ""
    (of_b,) = cut.templates().keys() - {of_a}
    assert cut.disk.record("uid-b")["pieces"][quarter(1)]["vnpu"] == of_b
    assert await driver.unprepare("b") == ""
    assert cut.templates().keys() == {of_a}
    assert await driver.unprepare("a") == ""
    assert cut.is_clean()


async def test_a_claim_gets_no_vnpu_of_another_when_none_was_cut(cut: CutNode) -> None:
    """The library says that it cut one, and names that of another claim."""

    class Idle(Vnpus):
        async def create(self, node: str, template: str, vnpu: int) -> int:
            del node, template, vnpu
            return of_a

    cut.store("a", quarter(0))
    cut.store("b", quarter(1))
    driver = cut.driver()
    assert await driver.prepare("a") == ""
    (of_a,) = cut.templates()
    refused = await cut.driver(vnpus=Idle).prepare("b")
    assert "the Ascend driver says that it cut vNPU" in refused
    assert await driver.prepare("b") == ""
    assert len(cut.templates()) == 2
    assert await driver.unprepare("b", "a") == ""
    assert cut.templates() == {}
    assert cut.is_clean()
