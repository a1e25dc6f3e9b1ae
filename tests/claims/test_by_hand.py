"""vNPUs that people create manually: those that no record names, except what a container uses."""

from __future__ import annotations

from functools import partial

from tests.claims.cut_node import CutNode
from tests.claims.instance import Instance
from tests.claims.node import claim, result
from tests.device_plugin.instance import RESOURCE
from trio_npu_dra.agent.device_plugin.device import ResourceDevice, partition_of
from trio_npu_dra.agent.holds.availability import pool_offers
from trio_npu_dra.ascend.vnpus import Vnpus
from trio_npu_dra.kit.base import storage


def published(cut: CutNode, driver: Instance) -> set[str]:
    """The vNPUs of the first chip that are devices of their own."""
    found = pool_offers(cut.disk.board.value, driver.holds, cut.partitioning.value)
    return {offer.name for offer in found if offer.name.startswith("npu-0-vnpu-")}


async def test_a_vnpu_of_a_broken_record_is_given_to_no_claim(cut: CutNode) -> None:
    """The claim's CDI file says that it has it; nor is the chip given beside it."""
    await cut.prepared()
    (vnpu,) = cut.templates(0)
    storage.write_atomic(cut.disk.state_folder / "claims" / "uid-a.json", b"{")
    await cut.division.again()
    cut.store("b", f"npu-0-vnpu-{vnpu}")
    cut.store("c", "npu-0")
    driver = cut.driver()
    await driver.look()
    assert "may be in use by the claim with UID uid-a" in await driver.prepare("b")
    assert "device npu-0 does not exist" in await driver.prepare("c")
    assert await driver.unprepare("a") == ""
    assert await driver.prepare("b") == ""


async def test_a_vnpu_that_a_container_uses_is_published_for_its_holder_alone(
    cut: CutNode,
) -> None:
    """Whether it is found in use or is used later; what no record names may be a claim's."""
    used, free = (cut.control.create_vnpu(0, "vir05_1c_8g") for _ in range(2))
    cut.control.use_vnpu(0, used)
    driver = cut.driver()
    cut.store("a", f"npu-0-vnpu-{used}")

    async def published_are(*vnpus: int) -> None:
        await cut.division.again()
        assert published(cut, driver) == {f"npu-0-vnpu-{vnpu}" for vnpu in vnpus}

    await published_are(free)
    cut.control.use_vnpu(0, free)
    await published_are()
    assert f"npu-0-vnpu-{used} must wait: a container uses its vNPU" in await driver.prepare("a")
    cut.control.use_vnpu(0, used, in_use=False)
    await published_are(used)
    assert await driver.prepare("a") == ""
    cut.control.use_vnpu(0, used)
    await published_are(used)
    assert await driver.prepare("a") == ""


async def test_a_vnpu_is_not_given_twice_when_the_library_chooses_its_id(cut: CutNode) -> None:
    """Before its id is on record it looks created manually, and another claim may get it."""

    class Choosing(Vnpus):
        async def create(self, node: str, template: str, vnpu: int) -> int:
            del vnpu
            made = await super().create(node, template, 100)
            await cut.division.again()
            assert await driver.prepare("b") == ""
            return made

    cut.store("a", "npu-0-vir05-1c-8g-0")
    cut.store("b", "npu-0-vnpu-100")
    driver = cut.driver(vnpus=Choosing)
    assert "another claim has got vNPU 100" in await driver.prepare("a")
    assert await cut.driver().prepare("a") == ""
    assert len(cut.templates(0)) == 2


async def test_the_id_of_a_held_vnpu_that_people_destroyed_is_not_given_again(cut: CutNode) -> None:
    """The CDI file of its claim still names it."""
    vnpu = cut.control.create_vnpu(0, "vir05_1c_8g", 115)
    await cut.division.again()
    cut.store("a", f"npu-0-vnpu-{vnpu}")
    cut.store("b", "npu-0-vir05-1c-8g-0")
    driver = cut.driver()
    assert await driver.prepare("a") == ""
    cut.control.destroy_vnpu(0, vnpu)
    await cut.division.again()
    assert await driver.prepare("b") == ""
    assert cut.templates(0).keys().isdisjoint({vnpu})


async def test_a_claim_for_a_vnpu_that_a_pod_uses_is_told_whose_it_is(cut: CutNode) -> None:
    """The device plugin gave it; a claim with admin access may have it beside the pod."""
    vnpu = cut.control.create_vnpu(0, "vir05_1c_8g")
    cut.control.use_vnpu(0, vnpu)
    await cut.division.again()
    chip = cut.disk.board.value.chips[0]
    given = ResourceDevice(resource=RESOURCE, chip=chip, partition=partition_of(chip, vnpu))
    driver = cut.driver()
    await driver.ledger.within(partial(driver.ledger.put, given.entry(namespace="ml", pod="x")))
    cut.store("a", f"npu-0-vnpu-{vnpu}")
    cut.disk.source.store(claim("b", result(f"npu-0-vnpu-{vnpu}", admin_access=True)))
    assert "is held by pod ml/x" in await driver.prepare("a")
    assert await driver.prepare("b") == ""
