"""vNPUs that people cut by hand, told from those that another instance cut for a claim."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from tests.claims.cut_node import CutNode
from trio_npu_dra.agent.claims.by_hand import find_cut_by_hand
from trio_npu_dra.agent.claims.vnpu_step import VnpuStep
from trio_npu_dra.agent.holds.availability import pool_offers
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.base import storage


@pytest.fixture(autouse=True)
def unsettled(cut: CutNode) -> None:
    """It is not known yet which vNPUs people cut."""
    cut.partitioning.set(replace(cut.partitioning.value, by_hand=frozenset()))


@asynccontextmanager
async def finding(cut: CutNode) -> AsyncIterator[Ledger]:
    """An instance that finds vNPUs, and its ledger, which is read when it has to be."""
    ledger, cdi = cut.disk.ledger(), cut.disk.cdi()
    step = VnpuStep(ledger=ledger, cdi=cdi, vnpus=cut.vnpus(), host=cut.disk.host)
    async with ledger.exclusive():
        pass  # as a start reads it
    async with trio.open_nursery() as nursery:
        await nursery.start(find_cut_by_hand, cut.disk.board, ledger, step, cut.partitioning)
        yield ledger
        nursery.cancel_scope.cancel()


def published(cut: CutNode, ledger: Ledger) -> list[str]:
    """The devices of the first chip."""
    found = pool_offers(cut.disk.board.value, ledger.holds.value, cut.partitioning.value)
    return [offer.name for offer in found if offer.chips[0].physical_id == 0]


async def seen_cut(cut: CutNode, *, number: int = 1) -> None:
    """Wait until the Board has so many vNPUs of the first chip."""
    await cut.disk.board.wait_until(lambda board: len(board.chips[0].vnpus) == number)


async def test_a_vnpu_that_people_cut_is_published_at_once(cut: CutNode) -> None:
    """And until it is destroyed."""
    async with finding(cut) as ledger:
        cut.control.create_vnpu(0, "vir05_1c_8g")
        (vnpu,) = cut.templates(0)
        await cut.partitioning.wait_until(
            lambda partitioning: partitioning.by_hand == frozenset({vnpu})
        )
        assert f"npu-0-vnpu-{vnpu}" in published(cut, ledger)
        cut.control.destroy_vnpu(0, vnpu)
        await cut.partitioning.wait_until(lambda partitioning: not partitioning.by_hand)
        assert "npu-0" in published(cut, ledger)


async def test_one_vnpu_is_not_given_to_two_claims(cut: CutNode) -> None:
    """By whatever name: the ledger knows that both names are one vNPU."""
    await cut.prepared()
    await seen_cut(cut)
    (vnpu,) = cut.templates(0)
    cut.partitioning.set(
        replace(cut.partitioning.value, by_hand=frozenset({vnpu}))
    )  # as if it were so
    cut.store("b", f"npu-0-vnpu-{vnpu}")
    stale = cut.driver()
    assert "is held by claim default/a" in await stale.prepare("b")
    assert cut.disk.cdi_uids() == {"uid-a"}


async def test_a_vnpu_of_a_broken_record_is_not_published(cut: CutNode) -> None:
    """The claim's CDI file says that it has it."""
    await cut.prepared()
    storage.write_atomic(cut.disk.state_folder / "claims" / "uid-a.json", b"{")
    await seen_cut(cut)
    async with finding(cut) as ledger:
        assert cut.partitioning.value.by_hand == frozenset()
        assert not any("-vnpu-" in name for name in published(cut, ledger))


async def test_a_vnpu_that_a_container_uses_is_published_for_its_holder_alone(
    cut: CutNode,
) -> None:
    """Whether it is found in use or is used later; what no record names may be a claim's."""
    used, free = (cut.control.create_vnpu(0, "vir05_1c_8g") for _ in range(2))
    cut.control.use_vnpu(0, used)
    async with finding(cut) as ledger:

        async def published_are(*vnpus: int) -> None:
            names = {f"npu-0-vnpu-{vnpu}" for vnpu in vnpus}
            await cut.partitioning.wait_until(
                lambda _: {one for one in published(cut, ledger) if "-vnpu-" in one} == names
            )

        await published_are(free)
        cut.control.use_vnpu(0, free)
        await published_are()
        cut.control.use_vnpu(0, used, in_use=False)
        await published_are(used)
        cut.store("a", f"npu-0-vnpu-{used}")
        driver = cut.driver()
        assert await driver.prepare("a") == ""
        cut.control.use_vnpu(0, used)
        async with ledger.exclusive():
            pass  # its record is read
        await cut.division.again()
        await published_are(used)
