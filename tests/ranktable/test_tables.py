"""HCCL takes the tables of jobs."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ranktable.hccl import CHECKED_FOR_EQUAL_SERVERS, load
from tests.ranktable.jobs import (
    A2,
    A3,
    A5,
    Job,
    Wire,
    gathered,
    levels,
    npu,
    pod,
    super_pods,
)
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.kit.base.errors import ConfigError, DriverError
from trio_npu_dra.tools.ranktable.tables import form_of, make_table, ranks_of, together

A1, DUO = ChipFamily.ASCEND_910, ChipFamily.ASCEND_310P

TWO_SERVERS: Job = [
    (
        pod(f"train-{at}", f"n{at}", index=at),
        [npu(n, A2, ips=[f"10.20.{at}.{n}/24"]) for n in (2, 3)],
    )
    for at in (0, 1)
]
OLD: Job = [
    (of, [npu(n, A1, ips=[f"10.20.{at}.{n}/24"]) for n in (0, 1)])
    for at, (of, _) in enumerate(TWO_SERVERS)
]
TWO_SUPER_PODS: Job = super_pods(7, 7, 8, 8)
UB: Job = [
    (of, [npu(n, A5, levels=levels(f"pod-{at}", f"{at}{n:031}")) for n in (0, 1)])
    for at, (of, _) in enumerate(TWO_SERVERS)
]


def made(job: Job, block: int | None = None) -> Wire:
    """The table of a job, whatever its flaws."""
    ranks = ranks_of(together(gathered(job).members))
    return make_table(ranks, form_of(ranks), block=block)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[ChipFamily, Job]:
    """Jobs of one generation: one or two pods a node, in any order, with addresses or without.

    HCCL wants servers of equal size for the older families.
    """
    family = draw(st.sampled_from([A1, DUO, A2, A3, A5]))
    in_super_pods = family is A3 and draw(st.booleans())
    address = draw(st.sampled_from(["10.20.{}.{}/24", "fd00:{}::{}/64"]))
    ways = [[2]] if family in CHECKED_FOR_EQUAL_SERVERS else [[2], [2, 2], [2, 1], [1]]
    nodes = draw(st.integers(1, 4))
    is_addressed = nodes > 1 or draw(st.booleans())
    places = []
    for node in range(nodes):
        facts: Wire = {"superPodId": draw(st.integers(7, 8))} if in_super_pods else {}
        sizes = draw(st.sampled_from(ways))
        for at, size in enumerate(sizes):
            devices = []
            for number in range(sum(sizes[:at]), sum(sizes[:at]) + size):
                if in_super_pods:
                    facts["sdid"] = 16 * node + number
                if family is A5:
                    facts["levels"] = levels("pod", f"{number:032}")
                ips = [address.format(node, number)] if is_addressed else ()
                devices.append(npu(number, family, ips=ips, **facts))
            places.append((f"n{node}", devices))
    indexes = draw(st.permutations(range(len(places))))
    return family, [
        (pod(f"train-{index}", node, index=index), devices)
        for index, (node, devices) in zip(indexes, places, strict=True)
    ]


@given(jobs())
def test_hccl_takes_the_table_of_a_job(one: tuple[ChipFamily, Job]) -> None:
    """Each NPU has a rank, those of a pod next to each other by physical id."""
    family, job = one
    load(json.dumps(made(job)), family)
    wanted = {
        (of.spec.node_name, device["data"]["physicalId"])
        for of, devices in job
        for device in devices
    }
    ranks = ranks_of(together(gathered(job).members))
    assert {(rank.member.node, rank.npu.physical_id) for rank in ranks} == wanted
    assert len(ranks) == len(wanted)
    for before, after in pairwise(ranks):
        if before.member == after.member:
            assert before.npu.physical_id < after.npu.physical_id


@pytest.mark.parametrize(
    ("job", "family", "version"),
    [
        (TWO_SERVERS, A2, "1.0"),
        (OLD, A1, "1.0"),
        (TWO_SUPER_PODS, A3, "1.2"),
        (super_pods(7, 7, ips=False), A3, "1.2"),
        ([(pod("train-0", "n0"), [npu(n, A3, superPodId=7, sdid=n) for n in (0, 1)])], A3, "1.2"),
        (UB, A5, "2.0"),
    ],
)
def test_forms(job: Job, family: ChipFamily, version: str) -> None:
    """Of each generation; within one super pod HCCL needs no addresses."""
    table = made(job)
    assert table["version"] == version
    load(json.dumps(table), family)


@pytest.mark.parametrize(
    ("job", "parts"), [(TWO_SERVERS, "servers"), (OLD, "servers"), (TWO_SUPER_PODS, "super pods")]
)
def test_missing_addresses_are_named(job: Job, parts: str) -> None:
    """One NPU without an address is enough; the message names the first."""
    *others, (of, devices) = job
    without = [
        one | {"networkData": None, "data": one["data"] | {"moduleDies": []}} for one in devices
    ]
    with pytest.raises(
        DriverError, match=f"of pod {of.metadata.name} .*device_ip .* several {parts}"
    ):
        made([*others, (of, without)])


def test_super_pods_stay_together() -> None:
    """The second super pod comes after all nodes of the first one."""
    members = together(gathered(super_pods(7, 8, 7)).members)
    assert [member.node for member in members] == ["n0", "n2", "n1"]


def test_addresses_are_of_the_family_that_most_npus_have() -> None:
    """IPv4 first; and all NPUs have one, or none where HCCL needs none."""
    both = [
        npu(n, ips=[*([f"10.20.0.{n + 1}/24"] if n else []), f"fd00::{n + 1}/64"]) for n in range(3)
    ]
    (server,) = made([(pod("train-0", "n0"), both[1:])])["server_list"]
    assert [device["device_ip"] for device in server["device"]] == ["10.20.0.2", "10.20.0.3"]
    (server,) = made([(pod("train-0", "n0"), both)])["server_list"]
    assert [device["device_ip"] for device in server["device"]] == ["fd00::1", "fd00::2", "fd00::3"]
    (server,) = made([(pod("train-0", "n0"), [*both, npu(3)])])["server_list"]
    assert not any("device_ip" in device for device in server["device"])


def test_a_host_address_is_only_beside_those_of_npus_and_on_a3() -> None:
    """Without theirs HCCL would use the network of the hosts."""
    assert all("host_ip" in server for server in made(TWO_SUPER_PODS)["server_list"])
    of_v6 = [
        (pod(of.metadata.name, of.spec.node_name, host="fd00::1"), devices)
        for of, devices in TWO_SUPER_PODS
    ]
    for job in (super_pods(7, 7, ips=False), TWO_SERVERS, of_v6, [*TWO_SUPER_PODS[:2], *of_v6[2:]]):
        assert not any("host_ip" in server for server in made(job)["server_list"])


def test_a_server_is_a_node() -> None:
    """Two of its pods are one server; a name of more than 64 letters becomes a digest."""
    for name in ("n" * 64, "n" * 65):
        (server,) = made([(pod(f"train-{n}", name), [npu(n)]) for n in (0, 1)])["server_list"]
        assert len(server["server_id"]) == 64
        assert (server["server_id"] == name) == (len(name) == 64)
        assert len(server["device"]) == 2


def test_super_pods_are_cut_into_blocks() -> None:
    """At ends of servers; the ids stay unique over physical super pods."""
    pods = made(TWO_SUPER_PODS, block=4)["super_pod_list"]
    assert [one["super_pod_id"] for one in pods] == ["7-0", "7-1", "8-0", "8-1"]
    assert len(made(TWO_SUPER_PODS, block=8)["super_pod_list"]) == 2
    for block in (5, 6, 7):
        with pytest.raises(
            ConfigError, match=f"={block}: node n1 would be in two logical super pods"
        ):
            made(TWO_SUPER_PODS, block=block)
    with pytest.raises(ConfigError, match=r"=2: is for form 1\.2, and the job has form 1\.0"):
        made(TWO_SERVERS, block=2)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (
            [*super_pods(7), (pod("train-1", "n1"), [npu(0, A2)])],
            "several generations: .*Ascend910A3 .*Ascend910B",
        ),
        ([(pod("train-0", "n0"), [npu(0, ChipFamily.ASCEND_310B)])], "no HCCL for Ascend310B"),
        ([(pod("train-0", "n0"), [npu(0, A5)])], "NPU 0 of pod train-0 on node n0 has no levels"),
        (
            [*super_pods(7), (pod("train-1", "n1"), [npu(0, A3, superPodId=7)])],
            "NPU 0 of pod train-1 on node n1 lacks its super pod or SDID",
        ),
        (
            [*super_pods(7), (pod("train-1", "n1"), [npu(0, A3, sdid=9)])],
            "NPU 0 of pod train-1 on node n1 lacks its super pod or SDID",
        ),
    ],
)
def test_no_table_can_be_made(job: Job, why: str) -> None:
    """The message says which NPU is in the way."""
    with pytest.raises(DriverError, match=why):
        made(job)
