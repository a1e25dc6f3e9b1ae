"""Promises of what the status of a claim says of its devices."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Interface
from typing import Any

import pytest

from tests.holds.entries import POOL, allocated, chip, entry, module, of_partition
from trio_npu_dra.agent.devices.npu_status import LEVELS_LIMIT
from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.agent.report.claim_status import device_statuses, say_the_same, stamped
from trio_npu_dra.ascend.model import (
    Board,
    Chip,
    ChipHealth,
    ChipNetwork,
    Fault,
    FaultLevel,
)
from trio_npu_dra.ascend.root_info import NO_LEVELS, Levels
from trio_npu_dra.kit.api.objects import DeviceStatus

DRIVER = "npu.huawei.com"
NETWORK = ChipNetwork(addresses=(IPv4Interface("10.0.0.1/24"),), mac="02:00:00:00:00:01")
FAULT = Fault(code=0x80C98000, level=FaultLevel.SEPARATE_NPU, rule="code", since=0)


def statuses(entry: Entry, *chips: Chip, levels: Levels = NO_LEVELS) -> tuple[DeviceStatus, ...]:
    """By a Board with these chips, with times."""
    found = device_statuses(entry, Board(chips=chips), levels, driver_name=DRIVER)
    return stamped(found, (), 0)


def test_each_device_is_named_as_it_is_allocated() -> None:
    """With the share where it has one; what a claim only looks at has no status."""
    mixed = replace(
        entry("a", 0, 1),
        allocation=(
            allocated("npu-0", share_id="s"),
            allocated("npu-0", share_id="t"),
            allocated("npu-1", admin_access=True),
        ),
    )
    found = statuses(mixed, chip(0), chip(1))
    assert [(one.driver, one.pool, one.device, one.share_id) for one in found] == [
        (DRIVER, POOL, "npu-0", "s"),
        (DRIVER, POOL, "npu-0", "t"),
    ]


@pytest.mark.parametrize(
    ("claim", "kind"),
    [(entry("a"), "npu"), (module("a", 0), "module"), (of_partition("a"), "vnpu")],
    ids=["npu", "module", "vnpu"],
)
def test_data_says_what_a_device_is_by_the_newest_facts(claim: Entry, kind: str) -> None:
    """Facts of the record count only for chips that the node does not have any more."""
    family = claim.devices[0].family
    assert family is not None
    chips = [replace(chip(number, family), super_pod_id=7) for number in (0, 1)]
    (found,) = statuses(claim, *chips)
    assert (found.data["type"], found.data["model"]) == (kind, family.value)
    assert found.data["superPodId"] == 7
    other = replace(chips[0], uuid="another die", super_pod_id=8)
    (found,) = statuses(claim, other, chips[1])
    assert "superPodId" not in found.data


@pytest.mark.parametrize(
    ("claim", "at_device", "at_dies"),
    [
        (entry("a"), True, []),
        (replace(entry("a"), allocation=(allocated("npu-0", share_id="s"),)), False, []),
        (of_partition("a"), False, []),
        (module("a", 0), False, [True, True]),
        (
            replace(module("a", 0), allocation=(allocated("module-0", share_id="s"),)),
            False,
            [False, False],
        ),
    ],
    ids=["npu", "share", "vnpu", "module", "share of module"],
)
def test_addresses_are_of_whole_chips(claim: Entry, at_device: bool, at_dies: list[bool]) -> None:
    """Those of a module are at its dies, because the API has room for one only."""
    family = claim.devices[0].family
    assert family is not None
    chips = (replace(chip(number, family), network=NETWORK) for number in (0, 1))
    (found,) = statuses(claim, *chips)
    wire = {"ips": ["10.0.0.1/24"], "hardwareAddress": "02:00:00:00:00:01"}
    assert found.to_wire().get("networkData") == (wire if at_device else None)
    dies = found.data.get("moduleDies", [])
    assert [die.get("networkData") == wire for die in dies] == at_dies


def test_levels_are_of_npus_as_far_as_there_is_room() -> None:
    """The API server takes 10 Ki of data."""
    small = {0: ({"net_layer": 0, "rank_addr_list": [{"addr": "a"}]},)}
    assert [one.data["levels"] for one in statuses(entry("a"), levels=small)] == [[*small[0]]]
    large = {0: ({"net_layer": 0, "rank_addr_list": ["a"] * LEVELS_LIMIT},)}
    for claim, levels in ((of_partition("a"), small), (entry("a"), large), (entry("a", 1), small)):
        assert all("levels" not in one.data for one in statuses(claim, levels=levels))


@pytest.mark.parametrize(
    ("health", "status", "reason", "message"),
    [
        (ChipHealth(network="link down"), "True", "Healthy", ""),
        (ChipHealth(faults=(FAULT,)), "False", "Unhealthy", str(FAULT)),
        (ChipHealth(unmonitored="no answer"), "Unknown", "Unmonitored", "no answer"),
        (None, "Unknown", "Unmonitored", "the node does not have it any more"),
    ],
    ids=["well", "faulty", "silent", "away"],
)
def test_condition_is_the_health_of_the_chips(
    health: ChipHealth | None, status: str, reason: str, message: str
) -> None:
    """A port that is down is no matter of it."""
    chips = [] if health is None else [replace(chip(0), health=health)]
    ((ready,),) = [one.conditions for one in statuses(entry("a"), *chips)]
    assert ready.to_wire() == {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    } | ({"message": message} if message else {})


def test_time_moves_with_the_status_alone() -> None:
    """Neither with a fact nor with the reason."""
    healths: list[tuple[dict[str, Any], str]] = [
        ({}, "00"),
        ({"super_pod_id": 7}, "00"),
        ({"health": ChipHealth(faults=(FAULT,))}, "02"),
        ({"health": ChipHealth(faults=(replace(FAULT, code=1),))}, "02"),
        ({}, "04"),
    ]
    known: tuple[DeviceStatus, ...] = ()
    for seconds, (facts, time) in enumerate(healths):
        board = Board(chips=(replace(chip(0), **facts),))
        wanted = device_statuses(entry("a"), board, driver_name=DRIVER)
        known = stamped(wanted, known, seconds)
        assert known[0].conditions[0].last_transition_time == f"1970-01-01T00:00:{time}Z"


def test_other_words_and_another_order_need_no_write() -> None:
    """Facts do, and a device more or less."""
    well, ill, worse = (
        statuses(entry("a", 0, 1), replace(chip(0), health=ChipHealth(faults=faults)), chip(1))
        for faults in ((), (FAULT,), (FAULT, FAULT))
    )
    assert say_the_same(ill, worse)
    assert say_the_same(ill, reversed(worse))
    assert not say_the_same(ill, well)
    assert not say_the_same(ill, ill[:1])
    (bare, addressed) = (
        statuses(entry("a"), replace(chip(0), network=net)) for net in (None, NETWORK)
    )
    assert not say_the_same(bare, addressed)
