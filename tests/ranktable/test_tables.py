"""HCCL takes the tables of jobs, and a flaw is found before HCCL finds it."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ranktable.hccl import Refused, load
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
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.base.errors import ConfigError, DriverError
from trio_npu_dra.tools.ranktable.order import is_together, together
from trio_npu_dra.tools.ranktable.rules import advice, refusals
from trio_npu_dra.tools.ranktable.tables import form_of, make_table, ranks_of

A1, DUO = ChipFamily.ASCEND_910, ChipFamily.ASCEND_310P
LEFT_OUT: Final = object()

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
TWO_DUOS: Job = [
    (of, [npu(n, DUO, ips=[f"10.20.{at}.{n}/24"]) for n in (0, 1)])
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


def is_taken(table: Wire, family: ChipFamily) -> bool:
    """Whether HCCL takes the table; the tool's own rules must say the same."""
    try:
        load(json.dumps(table), family)
    except Refused:
        taken = False
    else:
        taken = True
    traits = TRAITS[family].rank_table
    assert traits is not None
    assert (not refusals(table, traits)) == taken, refusals(table, traits)
    return taken


@st.composite
def jobs(draw: st.DrawFn) -> tuple[ChipFamily, Job]:
    """Jobs of one generation: one or two pods a node, in any order; NPU 3 may have no address."""
    family = draw(st.sampled_from([A1, DUO, A2, A3, A5]))
    in_super_pods = family is A3 and draw(st.booleans())
    address = draw(st.sampled_from(["10.20.{}.{}/24", "fd00:{}::{}/64"]))
    without = draw(st.sampled_from([(), (3,), range(16)]))
    places = []
    for node in range(draw(st.integers(1, 4))):
        facts: Wire = {"superPodId": draw(st.integers(7, 8))} if in_super_pods else {}
        sizes = draw(st.lists(st.sampled_from([2, 2, 2, 1]), min_size=1, max_size=2))
        for at, size in enumerate(sizes):
            devices = []
            for number in range(sum(sizes[:at]), sum(sizes[:at]) + size):
                if in_super_pods:
                    facts["sdid"] = 16 * node + number
                if family is A5:
                    facts["levels"] = levels("pod", f"{number:032}")
                ips = () if number in without else [address.format(node, number)]
                devices.append(npu(number, family, ips=ips, **facts))
            places.append((f"n{node}", devices))
    indexes = draw(st.permutations(range(len(places))))
    return family, [
        (pod(f"train-{index}", node, index=index), devices)
        for index, (node, devices) in zip(indexes, places, strict=True)
    ]


@given(jobs())
def test_a_job_has_a_table_unless_hccl_would_refuse_it(one: tuple[ChipFamily, Job]) -> None:
    """Each NPU has a rank, those of a pod next to each other by physical id."""
    family, job = one
    table = made(job)
    is_taken(table, family)
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
    assert is_taken(table, family)


A2_FLAWS: list[Wire] = [
    {"version": "1.1"},
    {"version": "2.0"},
    {"status": "initializing"},
    {"server_count": "3"},
    {"server_count": 2},
    {"server_list.0.server_id": ""},
    {"server_list.0.server_id": "n" * 65},
    {"server_list.0.server_id": "n1", "server_list.0.device.0.device_id": "0"}
    | {"server_list.0.device.1.device_id": "1"},
    {"server_list.0.device": []},
    {"server_list.0.device.0.device_id": 2},
    {"server_list.0.device.0.device_id": "two"},
    {"server_list.0.device.0.device_id": "3"},
    {"server_list.0.device.0.device_id": "16"},
    {"server_list.0.device.0.rank_id": 0},
    {"server_list.0.device.0.rank_id": "1"},
    {"server_list.1.device.1.rank_id": "4"},
    {"server_list.0.device.1.rank_id": "2", "server_list.1.device.0.rank_id": "1"},
    {"server_list.0.device.0.device_ip": LEFT_OUT},
    {"server_list.0.device.0.device_ip": ""},
    {"server_list.0.device.0.device_ip": "10.20.0"},
    {"server_list.0.device.0.device_ip": "10.20.1.3"},
    {"server_list.0.device.0.device_ip": "fd00::1"},
]
OLD_FLAWS: list[Wire] = [
    {"server_list.0.device.0.device_ip": LEFT_OUT},
    {"server_list.1.device.1": LEFT_OUT},
    {"server_list.1.device.1.device_id": "8"},
]
DUO_FLAWS: list[Wire] = [
    {"server_list.0.device.1": LEFT_OUT, "server_list.1.device.0.rank_id": "1"}
    | {"server_list.1.device.1.rank_id": "2"},
    {"server_list.0.device.1.device_id": "32"},
]
A3_FLAWS: list[Wire] = [
    {"server_list.0.device.3.device_id": "16"},
    {"server_list.0.device.0.super_device_id": LEFT_OUT},
    {"server_list.0.device.0.super_device_id": ""},
    {"server_list.0.device.0.super_device_id": 0},
    {"server_list.0.device.0.super_device_id": str(0xFFFFFFFF)},
    {"server_list.0.device.0.super_device_id": "1"},
    {"server_list.0.device.0.device_ip": LEFT_OUT},
    {"server_list.1.host_ip": "fd00::1"},
    {"super_pod_list.0.super_pod_id": ""},
    {"super_pod_list.0.super_pod_id": "8"},
    {"super_pod_list.0.server_list.0": LEFT_OUT},
    {"super_pod_list.0.server_list.0.server_id": "n9"},
    {"super_pod_list.0.server_list.0.server_id": "n2"},
    {
        "super_pod_list.0.server_list.0.server_id": "n2",
        "super_pod_list.1.server_list.0.server_id": "n0",
    },
]
UB_FLAWS: list[Wire] = [
    {"version": "1.0"},
    {"rank_count": 3},
    {"rank_count": "4"},
    {"rank_list.0.rank_id": 1},
    {"rank_list.3.rank_id": 4},
    {"rank_list.0.rank_id": "0"},
    {"rank_list.0.device_id": 65},
    {"rank_list.0.device_id": "0"},
    {"rank_list.0.local_id": 64},
    {"rank_list.0.level_list": []},
    {"rank_list.0.level_list.0.net_layer": 8},
    {"rank_list.0.level_list.0.net_instance_id": ""},
    {"rank_list.0.level_list.0.net_instance_id": "n" * 1025},
    {"rank_list.0.level_list.0.net_type": "RING"},
    {"rank_list.0.level_list.0.rank_addr_list": []},
    {"rank_list.0.level_list.0.rank_addr_list.0.addr_type": "MAC"},
    {
        "rank_list.0.level_list.0.rank_addr_list.0.addr_type": "IPV4",
        "rank_list.0.level_list.0.rank_addr_list.0.addr": "fd00::1",
    },
    {"rank_list.0.level_list.0.rank_addr_list.0.addr": "0" * 31},
    {"rank_list.0.level_list.0.rank_addr_list.0.addr_type": "IPV4"},
    {"rank_list.0.level_list.0.rank_addr_list.0.addr": "0" * 31 + "x"},
    {"rank_list.0.level_list.0.rank_addr_list.0.ports": []},
    {"rank_list.0.level_list.0.rank_addr_list.0.ports": [f"0/{at}" for at in range(17)]},
    {"rank_list.0.level_list.0.rank_addr_list.0.ports": ["0" * 33]},
    {"rank_list.0.level_list.0.rank_addr_list.0.plane_id": "p" * 1025},
    {"rank_list.0.level_list.0.rank_addr_list.0.plane_id": 0},
    {"rank_list.0.level_list.0.rank_addr_list.0.backup_addr": [f"1{0:031}"]},
    {"rank_list.0.level_list.0.net_attr": 0},
    {"rank_list.0.level_list.0.pcie_fallback": "no"},
]


@pytest.mark.parametrize(
    ("job", "family", "change"),
    [
        *((TWO_SERVERS, A2, change) for change in A2_FLAWS),
        *((OLD, A1, change) for change in OLD_FLAWS),
        *((TWO_DUOS, DUO, change) for change in DUO_FLAWS),
        *((TWO_SUPER_PODS, A3, change) for change in A3_FLAWS),
        (super_pods(7, 7), A3, {"server_list.1.device.3.device_ip": LEFT_OUT}),
        *((UB, A5, change) for change in UB_FLAWS),
    ],
)
def test_a_flaw_is_refused(job: Job, family: ChipFamily, change: Wire) -> None:
    """By HCCL and by the tool, which names the field."""
    table = json.loads(json.dumps(made(job)))
    for path, value in change.items():
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
        part: Any = table
        for step in steps:
            part = part[step]
        if value is LEFT_OUT:
            del part[last]
        else:
            part[last] = value
    assert not is_taken(table, family)


def test_levels_of_a_rank_grow() -> None:
    """A level that comes twice is refused; one of host addresses is taken."""
    table = made(UB)
    level = copy.deepcopy(table["rank_list"][0]["level_list"][0])
    of_host = level["rank_addr_list"][0]
    of_host |= {"addr_type": "IPV4", "addr": "10.20.0.1", "backup_addr": ["10.20.0.2"]}
    table["rank_list"][0]["level_list"].append(level)
    assert not is_taken(table, A5)
    level["net_layer"] = 3
    assert is_taken(table, A5)
    of_host["backup_addr"] = ["fd00::2"]
    assert not is_taken(table, A5)
    of_host["backup_addr"] = [f"10.20.0.{at}" for at in range(17)]
    assert not is_taken(table, A5)


def test_levels_and_their_addresses_are_limited() -> None:
    """8 levels of 24 addresses, equally many at each rank of an instance."""
    table = made(UB)
    for rank in table["rank_list"]:
        (level,) = rank["level_list"]
        level["rank_addr_list"] *= 24
        rank["level_list"] = [level | {"net_layer": at} for at in range(8)]
    assert is_taken(table, A5)
    longer = copy.deepcopy(table)
    for rank in longer["rank_list"]:
        rank["level_list"][0]["rank_addr_list"] *= 2
    assert not is_taken(longer, A5)
    table["rank_list"][0]["level_list"] *= 2
    assert not is_taken(table, A5)


@pytest.mark.parametrize(
    ("job", "change", "said"),
    [
        (TWO_SERVERS, "device_ip", "over several servers"),
        (UB, "level_list", "rank_list.2.level_list"),
        (TWO_SUPER_PODS, "device_ip", "over several super pods"),
    ],
)
def test_a_refusal_names_the_rank(job: Job, change: str, said: str) -> None:
    """The one that is wrong, and no other."""
    table = made(job)
    of_servers = (one for server in table.get("server_list", ()) for one in server["device"])
    ranks = table.get("rank_list") or [*of_servers]
    ranks[2][change] = None
    traits = form_of(ranks_of(gathered(job).members)).traits
    found = refusals(table, traits)
    assert {one.rank for one in found} - {None} == {2}
    assert said in found[0].text


def test_super_pods_stay_together() -> None:
    """The second super pod comes after all nodes of the first one."""
    members = together(gathered(super_pods(7, 8, 7)).members)
    assert [member.node for member in members] == ["n0", "n2", "n1"]
    assert not is_together(gathered(super_pods(7, 8, 7)).members)


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
    """It is said which NPU is in the way."""
    with pytest.raises(DriverError, match=why):
        made(job)


def test_unequal_parts_are_advised_against() -> None:
    """Where HCCL takes them, which makes it slow."""
    assert not [*advice(made(TWO_SERVERS)), *advice(made(TWO_SUPER_PODS)), *advice(made(UB))]
    uneven = made([*TWO_SERVERS, (pod("train-2", "n2"), [npu(0, ips=["10.20.2.0/24"])])])
    assert is_taken(uneven, A2)
    assert [*advice(uneven)] == [
        "servers have unequal numbers of NPUs, which is slow: n0 2, n1 2, n2 1"
    ]
    (said,) = advice(made(super_pods(7, 8, 8)))
    assert said == "super pods have unequal numbers of servers, which is slow: 7 1, 8 2"
