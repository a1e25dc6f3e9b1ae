"""Which vNPUs are ours is never forgotten, and no id is of two claims, whatever breaks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import trio

from tests.claims.cut_node import CutNode, cut_node, quarter
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.vnpus import Vnpus

NO_ANSWER = DcmiError(-8011, "dcmi_create_vdevice", "no answer could be received")


@pytest.fixture
async def node(tmp_path: Path, simulator: Path) -> AsyncIterator[CutNode]:
    """A server with eight 910B4, which are cut."""
    async with cut_node(tmp_path / "node", simulator) as node:
        with trio.fail_after(30):
            yield node


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


async def test_an_id_stays_noted_while_nobody_can_tell_whether_it_was_made(node: CutNode) -> None:
    """So that what the chip made is removed with its claim."""
    node.store("a", quarter(0))
    driver = node.driver(vnpus=Mute)
    assert "no answer could be received" in (await driver.prepare("a"))["a"]
    assert node.disk.record("uid-a")["pieces"][quarter(0)]["vnpu"] is not None
    Mute.is_mute = False
    assert len(node.templates()) == 1
    assert await driver.unprepare("a") == {"a": ""}
    assert node.templates() == {}
    assert node.is_clean()


async def test_the_id_of_a_lost_partition_is_given_to_no_other_claim(node: CutNode) -> None:
    """The claim that lost it gets it again under that id."""
    node.store("a", quarter(0))
    node.store("b", quarter(1))
    driver = node.driver()
    await driver.prepare("a")
    (lost,) = node.templates()
    node.control.destroy_vnpu(0, lost)
    assert await driver.prepare("b") == {"b": ""}
    assert lost not in node.templates()
    await driver.look()
    assert len(node.templates()) == 2
    assert lost in node.templates()


# --- records that break --------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["allocation", "chips", "edits", "another partition"])
async def test_a_vnpu_is_removed_whatever_else_its_record_says(node: CutNode, part: str) -> None:
    """A newer version may say it in other words."""
    node.store("a", quarter(0))
    await node.driver().prepare("a")
    record = node.disk.record("uid-a")
    if part == "another partition":
        record["pieces"]["npu-1-new"] = "of a kind that is not known"
    else:
        record[part] = "in words that are not known"
    (node.disk.records_folder / "uid-a.json").write_text(json.dumps(record))
    assert await node.driver().unprepare("a") == {"a": ""}
    assert node.templates() == {}
    assert node.is_clean()


@pytest.mark.parametrize("then", ["prepared again", "unprepared"])
async def test_a_record_that_breaks_costs_no_vnpu(node: CutNode, then: str) -> None:
    """It is there twice: the claim keeps what its pod uses, and gives that back."""
    node.store("a", quarter(0))
    await node.driver().prepare("a")
    before = node.templates()
    (node.disk.records_folder / "uid-a.json").write_bytes(b"")
    driver = node.driver()
    await driver.look()
    if then == "prepared again":
        assert await driver.prepare("a") == {"a": ""}
        assert node.templates() == before
    assert await driver.unprepare("a") == {"a": ""}
    assert node.templates() == {}
    assert node.is_clean()


async def test_a_record_of_a_version_without_copies_gets_one(node: CutNode) -> None:
    """And whatever is in the place of their folder is set aside."""
    node.store("a", quarter(0))
    await node.driver().prepare("a")
    copies = node.disk.state_folder / "copies"
    (copies / "uid-a.json").unlink()
    copies.rmdir()
    copies.write_text("not a folder")
    await node.driver().look()
    (node.disk.records_folder / "uid-a.json").write_bytes(b"")
    assert await node.driver().unprepare("a") == {"a": ""}
    assert node.templates() == {}


async def test_a_record_that_breaks_is_not_taken_from_what_its_claim_had_before(
    node: CutNode,
) -> None:
    """A copy of that would free what it has now."""
    node.store("a", quarter(0))
    await node.driver().prepare("a")
    node.store("a", "npu-1")
    assert await node.driver().prepare("a") == {"a": ""}
    (node.disk.records_folder / "uid-a.json").write_bytes(b"")
    node.store("b", "npu-1")
    assert "may be in use by the claim with UID uid-a" in (await node.driver().prepare("b"))["b"]


async def test_a_copy_without_a_record_brings_no_claim_back(node: CutNode) -> None:
    """An earlier version, which knows no copies, has unprepared it."""
    node.store("a", quarter(0))
    await node.driver().prepare("a")
    content = (node.disk.state_folder / "copies" / "uid-a.json").read_bytes()
    assert await node.driver().unprepare("a") == {"a": ""}
    (node.disk.state_folder / "copies" / "uid-a.json").write_bytes(content)
    driver = node.driver()
    await driver.look()
    assert driver.holds == ()
    assert node.is_clean()


def spoiling(node: CutNode) -> type[Vnpus]:
    """Vnpus beside which the record of claim a breaks, with its copy, before another is written."""

    async def spoil() -> None:
        for folder in (node.disk.records_folder, node.disk.state_folder / "copies"):
            (folder / "uid-a.json").write_bytes(b"")
        node.store("other", "npu-7")
        assert await node.driver().prepare("other") == {"other": ""}

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
async def test_a_record_that_breaks_in_a_call_is_that_claims_error(
    node: CutNode, call: str
) -> None:
    """Both it and its copy: the daemon lives on."""
    node.store("a", quarter(0))
    if call == "prepare":
        answer = await node.driver(vnpus=spoiling(node)).prepare("a")
    else:
        await node.driver().prepare("a")
        answer = await node.driver(vnpus=spoiling(node)).unprepare("a")
    assert "the record of uid-a cannot be read any more" in answer["a"]


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
    node: CutNode, *, is_anothers: bool
) -> None:
    """Be the id that it returns that of another claim's vNPU, or of none."""
    node.store("a", quarter(0))
    node.store("b", quarter(1))
    driver = node.driver()
    assert await driver.prepare("a") == {"a": ""}
    (of_a,) = node.templates()
    Misnaming.says = of_a if is_anothers else 149
    assert await node.driver(vnpus=Misnaming).prepare("b") == {"b": ""}
    (of_b,) = node.templates().keys() - {of_a}
    assert node.disk.record("uid-b")["pieces"][quarter(1)]["vnpu"] == of_b
    assert await driver.unprepare("b") == {"b": ""}
    assert node.templates().keys() == {of_a}
    assert await driver.unprepare("a") == {"a": ""}
    assert node.is_clean()


async def test_a_claim_gets_no_vnpu_of_another_when_none_was_cut(node: CutNode) -> None:
    """The library says that it cut one, and names that of another claim."""

    class Idle(Vnpus):
        async def create(self, node: str, template: str, vnpu: int) -> int:
            del node, template, vnpu
            return of_a

    node.store("a", quarter(0))
    node.store("b", quarter(1))
    driver = node.driver()
    assert await driver.prepare("a") == {"a": ""}
    (of_a,) = node.templates()
    refused = (await node.driver(vnpus=Idle).prepare("b"))["b"]
    assert "the Ascend driver says that it cut vNPU" in refused
    assert await driver.prepare("b") == {"b": ""}
    assert len(node.templates()) == 2
    assert await driver.unprepare("b", "a") == {"b": "", "a": ""}
    assert node.templates() == {}
    assert node.is_clean()
