"""vNPUs that people cut by hand, told from those that another instance cut for a claim."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from tests.claims.cut_node import CutNode, cut_node, quarter
from trio_npu_dra.agent.claims.by_hand import find_cut_by_hand
from trio_npu_dra.agent.claims.vnpu_step import VnpuStep
from trio_npu_dra.agent.holds.availability import pool_offers
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.vnpus import Vnpus
from trio_npu_dra.kit.base import storage


@pytest.fixture
async def node(tmp_path: Path, simulator: Path) -> AsyncIterator[CutNode]:
    """A node on which nothing is settled yet."""
    async with cut_node(tmp_path / "node", simulator) as node:
        node.partitioning.set(replace(node.partitioning.value, by_hand=frozenset()))
        with trio.fail_after(60):
            yield node


@asynccontextmanager
async def finding(node: CutNode) -> AsyncIterator[Ledger]:
    """An instance that finds vNPUs, and its ledger, which is read when it has to be."""
    ledger, cdi = node.disk.ledger(), node.disk.cdi()
    vnpus = Vnpus(
        node.worker, node.dcmi, node.disk.board, splits=node.splits, partitioning=node.partitioning
    )
    step = VnpuStep(ledger=ledger, cdi=cdi, vnpus=vnpus, host=node.disk.host)
    async with ledger.exclusive():
        pass  # as a start reads it
    async with trio.open_nursery() as nursery:
        await nursery.start(find_cut_by_hand, node.disk.board, ledger, step, node.partitioning)
        yield ledger
        nursery.cancel_scope.cancel()


def published(node: CutNode, ledger: Ledger) -> list[str]:
    """The devices of the first chip."""
    found = pool_offers(node.disk.board.value, ledger.holds.value, node.partitioning.value)
    return [offer.name for offer in found if offer.chips[0].physical_id == 0]


async def seen_cut(node: CutNode, *, number: int = 1) -> None:
    """Wait until the Board has so many vNPUs of the first chip."""
    await node.disk.board.wait_until(lambda board: len(board.chips[0].vnpus) == number)


async def test_a_vnpu_that_another_instance_cut_is_never_published(node: CutNode) -> None:
    """Whether its record was read or not."""
    async with finding(node) as ledger:
        free = published(node, ledger)
        node.store("a", quarter(0))
        assert await node.driver().prepare("a") == {"a": ""}
        await seen_cut(node)
        assert published(node, ledger) == free
        await node.splits.again()
        assert published(node, ledger) == free
        assert node.partitioning.value.by_hand == frozenset()


async def test_a_vnpu_that_people_cut_is_published_at_once(node: CutNode) -> None:
    """And until it is destroyed."""
    async with finding(node) as ledger:
        node.control.create_vnpu(0, "vir05_1c_8g")
        (vnpu,) = node.templates(0)
        await node.partitioning.wait_until(
            lambda partitioning: partitioning.by_hand == frozenset({vnpu})
        )
        assert f"npu-0-vnpu-{vnpu}" in published(node, ledger)
        node.control.destroy_vnpu(0, vnpu)
        await node.partitioning.wait_until(lambda partitioning: not partitioning.by_hand)
        assert "npu-0" in published(node, ledger)


async def test_one_vnpu_is_not_given_to_two_claims(node: CutNode) -> None:
    """By whatever name: the ledger knows that both names are one vNPU."""
    node.store("a", quarter(0))
    assert await node.driver().prepare("a") == {"a": ""}
    await seen_cut(node)
    (vnpu,) = node.templates(0)
    node.partitioning.set(
        replace(node.partitioning.value, by_hand=frozenset({vnpu}))
    )  # as if it were so
    node.store("b", f"npu-0-vnpu-{vnpu}")
    stale = node.driver()
    assert "is held by claim default/a" in (await stale.prepare("b"))["b"]
    assert node.disk.cdi_uids() == {"uid-a"}


async def test_a_vnpu_of_a_broken_record_is_not_published(node: CutNode) -> None:
    """The claim's CDI file says that it has it."""
    node.store("a", quarter(0))
    assert await node.driver().prepare("a") == {"a": ""}
    storage.write_atomic(node.disk.state_folder / "claims" / "uid-a.json", b"{")
    await seen_cut(node)
    async with finding(node) as ledger:
        assert node.partitioning.value.by_hand == frozenset()
        assert not any("-vnpu-" in name for name in published(node, ledger))
