"""How the tables of the cluster show held devices: whole, in partitions, or gone."""

from __future__ import annotations

import pytest

from dev.explain.reasons import DRAINED, held, npu
from dev.explain.world import (
    DRIVER,
    Wire,
    ask,
    claim,
    device,
    slice_,
    taint_rule,
    view_of,
    with_results,
)
from trio_npu_dra.tools.cli.npu_words import device_lines, fleet_lines, summary
from trio_npu_dra.tools.cli.table import plain
from trio_npu_dra.tools.cluster.fleet import NodeRow, fleet


def _nodes(*objects: Wire) -> tuple[NodeRow, ...]:
    return fleet(view_of(*objects), DRIVER)


def _said(*objects: Wire, is_wide: bool = False) -> list[str]:
    """The lines, with one space between words."""
    nodes = _nodes(*objects)
    lines = device_lines(nodes) if is_wide else fleet_lines(nodes)
    return [" ".join(plain(line).split()) for line in lines]


def _cut_slice() -> Wire:
    """An NPU that can be cut into four quarters."""

    def takes(quarters: int) -> list[Wire]:
        return [{"counterSet": "npu-0", "counters": {"quarters": {"value": str(quarters)}}}]

    partitions = [
        device(f"npu-0-vir05-{number}", {"type": "vnpu"}, consumesCounters=takes(1))
        for number in range(4)
    ]
    sets = [{"name": "npu-0", "counters": {"quarters": {"value": "4"}}}]
    return slice_("s1", npu(0) | {"consumesCounters": takes(4)}, *partitions, sharedCounters=sets)


def _looking(*devices: str) -> Wire:
    """A claim that looks on, with a pod."""
    results = [
        {"request": "npu", "driver": DRIVER, "pool": "n1", "device": one, "adminAccess": True}
        for one in devices
    ]
    return with_results(claim("look", ask(adminAccess=True)), results, users=["look-0"])


def _partition_of(name: str) -> Wire:
    result = {"request": "npu", "driver": DRIVER, "pool": "n1", "device": name}
    return with_results(claim("infer", ask()), [result], users=["infer-0"])


def test_a_claim_holds_what_it_was_given_and_not_what_that_blocks() -> None:
    """A partition keeps the NPU away, and the NPU its partitions; neither is held for that."""
    partition = _said(_cut_slice(), _partition_of("npu-0-vir05-1"))
    whole = _said(_cut_slice(), _partition_of("npu-0"))

    assert partition[-1] == "claim default/infer (pod infer-0) n1 npu-0-vir05-1"
    assert whole[-1] == "claim default/infer (pod infer-0) n1 npu-0"
    assert partition[1].startswith("n1 1 910B4 32Gi 0 1 ")
    wide = _said(_cut_slice(), _partition_of("npu-0-vir05-1"), is_wide=True)
    assert [line.split()[1] for line in wide] == ["DEVICE", "npu-0", "npu-0-vir05-1"]
    assert "claim default/infer (pod infer-0)" in wide[1]
    wide = _said(_cut_slice(), _partition_of("npu-0"), is_wide=True)
    assert [line.split()[1] for line in wide] == ["DEVICE", "npu-0"]


def test_a_pod_group_that_has_a_claim_is_named() -> None:
    """The claim names none of its pods."""
    train = held(0, name="train")
    train["status"]["reservedFor"] = [{"resource": "podgroups", "name": "gang", "uid": "g"}]
    assert _said(slice_("s1", npu(0)), train)[-1] == "claim default/train (PodGroup gang) n1 npu-0"


def test_a_claim_that_looks_on_is_told_from_one_that_has_the_device() -> None:
    """Else an NPU would seem to be given twice."""
    lines = _said(slice_("s1", npu(0), npu(1)), held(0), _looking("npu-0", "npu-1"))

    assert lines[1].startswith("n1 2 910B4 32Gi 1 1 0 ")
    assert lines[-2:] == [
        "claim default/infer (pod infer-0) n1 npu-0",
        "claim default/look (pod look-0; admin access) n1 npu-0, npu-1",
    ]


def test_claims_are_shown_after_the_driver_is_gone() -> None:
    """No slice is left, and the pods run on with their NPUs."""
    lines = _said(held(0, 1), _looking("npu-0"))

    assert lines == [
        "NODE NPUS MODEL MEMORY FREE USED UNHEALTHY WHOLE RINGS",
        "n1 2 - - 0 2 0 -",
        "",
        "HELD BY NODE DEVICES",
        "claim default/infer (pod infer-0) n1 npu-0, npu-1",
        "claim default/look (pod look-0; admin access) n1 npu-0",
        "",
        "held, and not published any more",
        "n1: npu-0, npu-1",
    ]
    assert summary(_nodes(_looking("npu-0")), DRIVER) == "no device of npu.huawei.com is published"


def test_npus_with_one_address_are_named() -> None:
    """They may be on several nodes; each die of a module counts, and no data of other drivers."""
    one, other = held(0, 1), held(0, name="train", node="n2")
    port = {"networkData": {"ips": ["10.0.0.1/24"]}}
    dies = [{"physicalId": number, **port} for number in (0, 1)]
    module = {"type": "module", "model": "Ascend910A3", "chipName": "A3", "physicalId": 0}
    data = {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuStatus", "moduleDies": dies}
    one["status"]["devices"] = [
        {"driver": DRIVER, "pool": "n1", "device": "npu-0", **port},
        {"driver": DRIVER, "pool": "n1", "device": "npu-1", "data": "of another driver"},
    ]
    other["status"]["devices"] = [
        {"driver": DRIVER, "pool": "n2", "device": "npu-0", "data": data | module}
    ]
    assert _said(slice_("s1", npu(0), npu(1)), one, other)[-2:] == [
        "NPUs have one address: no job can have both",
        "10.0.0.1: n1/npu-0, n2/npu-0, n2/npu-0",
    ]


def test_an_npu_that_was_withdrawn_while_held_is_counted() -> None:
    """It is in use, and no ring of its node is whole: it may be of any."""
    objects = (slice_("s1", npu(0), npu(1), npu(2, ring=1)), held(3))
    (node,) = _nodes(*objects)
    wide = _said(*objects, is_wide=True)

    assert (len(node.whole), node.free, node.used) == (4, 3, 1)
    assert [ring.is_whole for ring in node.rings] == [False, False]
    assert "n1 npu-3 - - used, withdrawn - - - claim default/infer (pod infer-0)" in wide


def test_a_ring_is_whole_while_all_of_it_is_free() -> None:
    """One NPU that is held breaks its ring, not that of the pool's other slice."""
    slices = (slice_("s1", npu(0), npu(1), count=2), slice_("s2", npu(2, ring=1), count=2))
    (node,) = _nodes(*slices, held(0))

    assert [(ring.size, ring.is_whole) for ring in node.rings] == [(2, False), (1, True)]


def test_a_partition_that_was_withdrawn_while_held_is_no_npu() -> None:
    """It has a row, and the rings of its node are as published."""
    (node,) = _nodes(slice_("s1", npu(0), npu(1)), _partition_of("npu-0-vir05-1"))

    assert [row.id.name for row in node.devices] == ["npu-0", "npu-1", "npu-0-vir05-1"]
    assert len(node.whole) == 2
    assert [ring.is_whole for ring in node.rings] == [True]


@pytest.mark.parametrize(
    ("selector", "drained"),
    [
        ({"driver": DRIVER, "pool": "n1", "device": "npu-0"}, ["n1/npu-0"]),
        ({"driver": DRIVER, "pool": "n1"}, ["n1/npu-0", "n1/npu-1"]),
        ({"device": "npu-0"}, ["n1/npu-0", "n2/npu-0"]),
        ({"driver": DRIVER}, ["n1/npu-0", "n1/npu-1", "n2/npu-0"]),
        ({}, ["n1/npu-0", "n1/npu-1", "n2/npu-0"]),
        ({"driver": "nic.example.com", "pool": "n1"}, []),
        ({"pool": "n3"}, []),
        (None, []),
    ],
)
def test_a_rule_taints_the_devices_that_it_selects(
    selector: dict[str, str] | None, drained: list[str]
) -> None:
    """Beside the taints that they have, as with a taint of the driver; no selector is no device."""
    leaving = {"key": f"{DRIVER}/leaving", "effect": "NoSchedule"}
    rule = taint_rule(DRAINED, **(selector or {}))
    if selector is None:
        rule["spec"]["deviceSelector"] = None
    nodes = _nodes(
        slice_("s1", npu(0, taints=[leaving]), npu(1)), slice_("s2", npu(0), node="n2"), rule
    )

    rows = {f"{node.node}/{row.device.name}": row for node in nodes for row in node.devices}
    rule_taint = "example.com/maintenance:NoExecute"
    assert [name for name, row in rows.items() if rule_taint in row.taints] == drained
    assert [name for name, row in rows.items() if row.is_unhealthy] == drained
    assert f"{DRIVER}/leaving:NoSchedule" in rows["n1/npu-0"].taints


def test_a_rule_without_effect_keeps_nobody_away() -> None:
    """The table shows its taint, and counts the NPU as free."""
    rule = taint_rule({**DRAINED, "effect": "None"}, pool="n1")
    (node,) = _nodes(slice_("s1", npu(0)), rule)

    assert (node.free, node.unhealthy) == (1, 0)
    assert node.devices[0].taints == ("example.com/maintenance:None",)
