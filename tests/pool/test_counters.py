"""Pools with counters: devices that overlap, and the sets that they consume from."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from dev.rig.boards import partition as cut_partition
from dev.rig.boards import split
from tests.ascend.test_splits import chip_of
from tests.claims.node import npu
from tests.pool.pools import counter_sets
from tests.pool.publishing import (
    DRIVER,
    NODE,
    WITHOUT_FEATURES,
    Devices,
    Subject,
    devices,
    publishing,
)
from tests.pool.reach import Reach
from trio_npu_dra.agent.devices.build import build_pool
from trio_npu_dra.agent.devices.features import ServerFeatures, follow_features
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.agent.holds.hold import Hold, Holder, HolderKind
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.offers import PartitionMode
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import (
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    ObjectMeta,
    OwnerReference,
    ResourceSlice,
)
from trio_npu_dra.kit.base.observable import Observable, derive
from trio_npu_dra.kit.pool import Pool, PoolContent
from trio_npu_dra.kit.pool.pool import check, specs
from trio_npu_dra.lab.standins.api_rules import Kubernetes, admit_slice

SETS = counter_sets(2)
TAINTS_ONLY = ServerFeatures(counters=False)


def partition(name: str, counter_set: str = "s0", cores: str = "10") -> Device:
    """A device that consumes from a counter set."""
    taken = DeviceCounterConsumption(
        counter_set=counter_set, counters={"ai-cores": Counter(value=cores)}
    )
    return Device(name=name, consumes_counters=(taken,))


PARTITIONS = (partition("npu-0-a"), partition("npu-0-b"), partition("npu-1-a", "s1"))


def laid_out(subject: Subject) -> list[tuple[tuple[CounterSet, ...], Devices]]:
    """What the API server has, slice by slice."""
    specs = [item.spec for item in subject.slices]
    return [(spec.shared_counters, spec.devices) for spec in specs]


async def test_counter_sets_are_published_before_the_devices_that_consume_from_them(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """Counter sets have slices of their own, which a restart adopts."""
    del autojump_clock
    for _ in range(2):
        async with publishing(KubeClient(reach), reach.state, PARTITIONS, SETS) as subject:
            status = await subject.until_settled()
            assert laid_out(subject) == [(SETS, ()), ((), PARTITIONS)]
            assert (status.devices, status.dropped) == (3, frozenset())
            await trio.sleep(600)
    assert reach.asked["create"] == 2
    assert (reach.asked["update"], reach.asked["delete"]) == (0, 0)


async def test_rewritten_quantities_are_not_written_again(
    reach: Reach, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The API server rewrites those of sets and of devices; there is a log line for each."""
    del autojump_clock
    caplog.set_level(logging.WARNING)
    sent = tuple(
        item.model_copy(update={"counters": {"ai-cores": Counter(value="20000")}}) for item in SETS
    )
    async with publishing(
        KubeClient(reach), reach.state, (partition("a", cores="1000"),), sent
    ) as subject:
        await subject.until_settled()
        await trio.sleep(600)
        assert subject.status.value.dropped == frozenset()
        subject.publish((partition("a", cores="1000"), *devices(1)), sent)
        await trio.sleep(600)
    assert (reach.asked["create"], reach.asked["update"]) == (2, 1)
    assert [vars(line)["fields"] for line in caplog.records] == [
        ["sharedCounters"],
        ["consumesCounters"],
    ]


# --- where counters are not kept -----------------------------------------------------------------


POLICY = TaintPolicy(domain=DRIVER)
CUT_BOARD = Board(chips=(chip_of("910b4-8"), replace(npu(1), memory_bytes=1 << 30)))


def pool_of(
    features: ServerFeatures, board: Board = CUT_BOARD, holds: Iterable[Hold] = ()
) -> PoolContent:
    """The pool of a chip that can be cut, and of one that cannot."""
    made = available(board, holds, PartitionMode(is_on=True))
    return build_pool(made, board, POLICY, features)


def test_where_counters_are_not_kept_only_whole_npus_are_published(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Partitions would be allocated as if they did not overlap; one log line says so."""
    caplog.set_level(logging.WARNING)
    ours = replace(chip_of("910b4-8"), ref=ChipRef(9, 0), physical_id=9)  # of this test alone
    for _ in range(2):
        content = pool_of(TAINTS_ONLY, replace(CUT_BOARD, chips=(CUT_BOARD.chips[1], ours)))
        assert [device.name for device in content.devices] == ["npu-1", "npu-9"]
        assert not any(device.consumes_counters for device in content.devices)
        assert content.shared_counters == ()
    (line,) = caplog.records
    assert "no partition of an NPU is published, whole NPUs only" in line.message
    assert (vars(line)["pieces"], vars(line)["first"]) == (9, "npu-9-vir10-3c-16g-0")


def test_where_counters_are_not_kept_a_chip_that_is_cut_is_not_published() -> None:
    """A scheduler would allocate all of the chip."""
    partition = Partition(template="vir05_1c_8g", number=0, vnpu=115)
    holder = Holder(kind=HolderKind.CLAIM, namespace="a", name="b", uid="c")
    held = Hold(holder=holder, device="x", nodes=frozenset({"/dev/davinci0"}), partition=partition)
    assert [device.name for device in pool_of(TAINTS_ONLY, holds=[held]).devices] == ["npu-1"]


def test_where_taints_are_not_kept_a_leaving_partition_still_counts() -> None:
    """The pool lacks it, because no new claim may get it, and its chip lacks its part."""
    partition = Partition(template="vir05_1c_8g", number=3, vnpu=115)
    holder = Holder(kind=HolderKind.CLAIM, namespace="a", name="b", uid="c")
    held = Hold(
        holder=holder, device="npu-0-held", nodes=frozenset({"/dev/davinci0"}), partition=partition
    )
    chip = split(
        chip_of("910b4-8"),
        cut_partition(115, partition.template),
        cut_partition(114, partition.template),
    )
    board = Board(chips=(chip,))
    tainted, untainted = (
        pool_of(features, board, [held])
        for features in (ServerFeatures(), ServerFeatures(taint_effects=frozenset()))
    )
    assert "npu-0-held" in [device.name for device in tainted.devices]
    assert "npu-0-held" not in [device.name for device in untainted.devices]
    (has,), (left,) = tainted.shared_counters, untainted.shared_counters
    assert [int(one.counters["ai-cores"].value) for one in (has, left)] == [15, 10]


@pytest.mark.parametrize(("profile", "count"), [("910b4-8", 8), ("910b2-8", 16), ("910a-8", 16)])
def test_an_api_server_accepts_the_pool(profile: str, count: int) -> None:
    """The pool keeps to the limits of the API with up to sixteen chips, and is stored as sent."""
    chips = tuple(
        replace(chip_of(profile), ref=ChipRef(number, 0), physical_id=number)
        for number in range(count)
    )
    content = pool_of(ServerFeatures(), Board(chips=chips))
    check(content)
    owner = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="u")
    pool = Pool(
        driver=DRIVER,
        node_name=NODE,
        owner=owner,
        devices=content.devices,
        shared_counters=content.shared_counters,
    )
    made = specs(pool, 1)
    assert [bool(spec.shared_counters) for spec in made][: count // 8] == [True] * (count // 8)
    for spec in made:
        item = ResourceSlice(metadata=ObjectMeta(name="one"), spec=spec)
        wire = item.to_wire()
        admit_slice(wire, kubernetes=Kubernetes())
        assert wire == item.to_wire()


def layout_of(features: ServerFeatures) -> list[tuple[tuple[CounterSet, ...], Devices]]:
    """The slices of it."""
    content = pool_of(features)
    sets = [(content.shared_counters, ())] if content.shared_counters else []
    return [*sets, ((), content.devices)]


@pytest.mark.parametrize(
    ("kubernetes", "kept"),
    [
        (Kubernetes(), ServerFeatures()),
        (Kubernetes(minor=35), ServerFeatures()),
        (WITHOUT_FEATURES, TAINTS_ONLY),
        (Kubernetes(minor=34), TAINTS_ONLY),
    ],
)
async def test_each_server_gets_what_it_keeps(
    kubernetes: Kubernetes,
    kept: ServerFeatures,
    reach: Reach,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    """Kubernetes 1.34 gets no counters even with its feature on, which wants them beside devices.

    After the server was replaced by another one, that one's features count.
    """
    del autojump_clock
    reach.state.kubernetes = kubernetes
    client = KubeClient(reach)
    features: Observable[ServerFeatures | None] = Observable(None)
    async with publishing(client, reach.state, ()) as subject:
        follow = partial(follow_features, client, features=features, status=subject.status)
        nursery.start_soon(partial(follow, node_name=NODE, driver_name=DRIVER))
        await features.wait_until(lambda found: found is not None)
        pool = partial(_pool, features)
        await nursery.start(derive, subject.pool, pool, features)
        await trio.sleep(1)
        assert laid_out(subject) == layout_of(kept)
        reach.leave()
        await trio.sleep(60)
        reach.state.kubernetes = Kubernetes()
        reach.come_back()
        await trio.sleep(65)  # the node's turn to ask comes within a minute
        assert laid_out(subject) == layout_of(ServerFeatures())
        assert subject.status.value.dropped == frozenset()


def _pool(features: Observable[ServerFeatures | None]) -> PoolContent:
    assert features.value is not None
    return pool_of(features.value)
