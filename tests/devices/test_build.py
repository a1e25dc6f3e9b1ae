"""Promises of the devices built from a Board."""

import re
from dataclasses import replace
from ipaddress import ip_interface

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_npu_dra.agent.devices.build import build_pool, semantic_version
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.taints import TaintEffect, TaintPolicy
from trio_npu_dra.ascend.dcmi.types import ChipRef, MultiDiePolicy, Resources, VDevice
from trio_npu_dra.ascend.model import (
    Board,
    Chip,
    ChipFamily,
    ChipHealth,
    ChipNetwork,
    Fault,
    FaultLevel,
)
from trio_npu_dra.ascend.offers import Held, Offer, OfferKind, offers
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.kit.api.objects import Device, DeviceAttribute, DeviceCapacity

EVERYTHING = ServerFeatures()
FULL = Chip(
    ref=ChipRef(5, 0),
    physical_id=3,
    logic_id=2,
    card_id=5,
    device_id=0,
    family=ChipFamily.ASCEND_910B,
    chip_name="910B4",
    npu_name="9392",
    product_name="Atlas 800T A2",
    uuid="0A1B2C3D-00000001",
    memory_bytes=32 << 30,
    ai_cores=20,
    pci_bus_id="0000:c1:00.0",
    pcie_root="pci0000:c0",
    numa_node=6,
    topology_group="ring-0",
    module="module-5",
)
BARE = Chip(
    ref=ChipRef(0, 0),
    physical_id=0,
    logic_id=0,
    card_id=0,
    device_id=0,
    family=ChipFamily.ASCEND_310P,
    chip_name="310P3",
)


def build(board: Board, features: ServerFeatures = EVERYTHING) -> tuple[Device, ...]:
    """The board's devices under the default policy."""
    policy = TaintPolicy(domain="npu.huawei.com")
    return build_pool(offers(board), board, policy, features).devices


def only(board: Board) -> Device:
    """The board's one device."""
    (device,) = build(board)
    return device


def plain(device: Device) -> dict[str, str | int]:
    """Attributes as plain values; the API server refuses an attribute without just one."""
    found = {}
    for name, attribute in device.attributes.items():
        (found[name],) = attribute.to_wire().values()
    return found


def test_every_known_fact_is_an_attribute() -> None:
    """Names, types and values are those that people write into selectors."""
    chip = replace(
        FULL, super_pod_id=7, super_pod_server_index=3, super_pod_sdid=12582912, device_share=False
    )
    policy = MultiDiePolicy.INDEPENDENT
    board = Board(chips=(chip,), driver_version="24.1.rc2.b030", multi_die_policy=policy)
    device = only(board)
    assert device.name == "npu-3"
    assert plain(device) == {
        "type": "npu",
        "model": "Ascend910B",
        "chipName": "910B4",
        "productName": "Atlas 800T A2",
        "npuName": "9392",
        "physicalId": 3,
        "logicId": 2,
        "cardId": 5,
        "deviceId": 0,
        "uuid": "0A1B2C3D-00000001",
        "numaNode": 6,
        "resource.kubernetes.io/numaNode": 6,
        "resource.kubernetes.io/pciBusID": "0000:c1:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:c0",
        "topologyGroup": "ring-0",
        "module": "module-5",
        "superPodId": 7,
        "superPodServerIndex": 3,
        "superPodSdid": 12582912,
        "deviceShare": False,
        "multiDiePolicy": "independent",
        "driverVersion": "24.1.0-rc2.b030",
    }
    assert device.attributes["driverVersion"] == DeviceAttribute(version="24.1.0-rc2.b030")
    assert device.capacity == {
        "aiCores": DeviceCapacity(value="20"),
        "memCapacity": DeviceCapacity(value="32Gi"),
    }


def test_a_device_is_made_once_for_all_holders_and_states_of_its_chip() -> None:
    """A claim or an address has the pool made again; only a taint makes another device."""
    fault = Fault(code=1, level=FaultLevel.SEPARATE_NPU, rule="", since=1.0)
    unhealthy = Board(chips=(replace(FULL, health=ChipHealth(faults=(fault,))),))
    (offer,) = offers(Board(chips=(FULL,)))
    held = replace(offer, held=Held.WHOLE)
    network = ChipNetwork(addresses=(ip_interface("10.20.0.13/24"),))
    reached = Board(chips=(replace(FULL, network=network),))
    policy = TaintPolicy(domain="npu.huawei.com")

    device = only(Board(chips=(FULL,)))

    assert build_pool([held], Board(chips=(FULL,)), policy, EVERYTHING).devices[0] is device
    assert only(reached) is device
    assert only(unhealthy).attributes is device.attributes
    assert (device.taints, len(only(unhealthy).taints)) == ((), 1)


def test_a_partition_has_the_facts_of_its_chip_that_are_true_of_it() -> None:
    """Its template, its parent and what it has; what names the whole chip is left out."""
    resources = Resources(ai_cores=5, ai_cpus=1, memory_mib=8192)
    partition = VDevice(id=148, template="vir05_1c_8g", in_use=False, resources=resources)
    whole = replace(
        FULL,
        board_id=0x41,
        vnpus=(148,),
        vdevices=(partition,),
        device_share=True,
        super_pod_sdid=7,
    )
    device = only(Board(chips=(whole,)))
    assert device.name == "npu-3-vnpu-148"
    assert plain(device) == {
        "type": "vnpu",
        "template": "vir05_1c_8g",
        "parentUUID": "0A1B2C3D-00000001",
        "model": "Ascend910B",
        "chipName": "910B4",
        "productName": "Atlas 800T A2",
        "npuName": "9392",
        "physicalId": 3,
        "cardId": 5,
        "deviceId": 0,
        "numaNode": 6,
        "resource.kubernetes.io/numaNode": 6,
        "resource.kubernetes.io/pcieRoot": "pci0000:c0",
        "topologyGroup": "ring-0",
        "module": "module-5",
    }
    assert device.capacity == {
        "aiCores": DeviceCapacity(value="5"),
        "aiCpus": DeviceCapacity(value="1"),
        "memCapacity": DeviceCapacity(value="7Gi"),
    }
    unknown = replace(whole, board_id=None, vdevices=(replace(partition, resources=Resources()),))
    assert not only(Board(chips=(unknown,))).capacity


def test_a_lost_partition_is_tainted_without_a_time() -> None:
    """The moment is not known: the API server adds its own."""
    lost = Offer(
        name="npu-3-vnpu-148",
        kind=OfferKind.VNPU,
        chips=(FULL,),
        partition=Partition(template="vir05_1c_8g", vnpu=148),
    )
    policy = TaintPolicy(domain="npu.huawei.com")
    (device,) = build_pool([lost], Board(chips=(FULL,)), policy, EVERYTHING).devices
    (taint,) = device.taints
    assert (taint.value, taint.effect, taint.time_added) == ("RestartNPU", "NoExecute", None)


def test_an_unknown_fact_is_absent() -> None:
    """Nothing is guessed: no zero, no empty string, no empty capacity."""
    device = only(Board(chips=(BARE,)))
    assert plain(device) == {
        "type": "npu",
        "model": "Ascend310P",
        "chipName": "310P3",
        "physicalId": 0,
        "logicId": 0,
        "cardId": 0,
        "deviceId": 0,
    }
    assert device.capacity == {}


def test_equal_facts_are_equal_bytes() -> None:
    """The order in which facts were found does not matter."""
    there = Board(chips=(FULL, BARE), driver_version="24.1.0")
    back = Board(chips=(BARE, FULL), driver_version="24.1.0")
    wire = [device.model_dump_json() for device in build(there)]
    assert wire == [device.model_dump_json() for device in build(back)]
    assert [device.name for device in build(there)] == ["npu-0", "npu-3"]


def test_a_refused_attribute_is_dropped_alone(caplog: pytest.LogCaptureFixture) -> None:
    """What the API server would refuse is left out with one line, however many NPUs have it."""
    long = "a name of 65 bytes, which is one more than the API server takes.."
    odd = replace(FULL, product_name=long, uuid="é" * 33)
    board = Board(chips=(odd, replace(odd, physical_id=4)), driver_version="V100R001C00")
    first, second = build(board)
    build(board)
    assert {"productName", "uuid", "driverVersion"}.isdisjoint(plain(first))
    assert plain(first)["chipName"] == plain(second)["chipName"] == "910B4"
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("24.1.0", "24.1.0"),
        ("24.1", "24.1.0"),
        ("24.1.rc2", "24.1.0-rc2"),
        ("24.1.RC2", "24.1.0-RC2"),
        ("24.1.rc2.b030", "24.1.0-rc2.b030"),
        ("24.1.0.3", "24.1.0+3"),
        ("24.1.0.b030", "24.1.0+b030"),
        ("24.1.b030", "24.1.0+b030"),
        ("25.0.rc1.1", "25.0.0-rc1.1"),
        ("1.2.3-rc1", "1.2.3-rc1"),
        ("24.1.0+" + "b" * 57, "24.1.0+" + "b" * 57),  # as long as the API server takes
        ("24.1.0+" + "b" * 58, None),
        ("24.01.0", None),
        ("24.1.rc2.007", None),
        ("24", None),
        ("V100R001", None),
        ("24.1.rc2 beta", None),
        ("24.1..0", None),
        ("", None),
    ],
)
def test_a_driver_version_becomes_semantic_or_nothing(printed: str, version: str | None) -> None:
    """A candidate sorts before its release, a build does not sort at all."""
    assert semantic_version(printed) == version


DIE = replace(
    FULL,
    family=ChipFamily.ASCEND_910_A3,
    chip_name="Ascend910",
    super_pod_id=7,
    super_pod_server_index=3,
    super_pod_sdid=12582912,
    device_share=False,
)
SISTER = replace(
    DIE,
    physical_id=4,
    logic_id=3,
    device_id=1,
    uuid="another",
    pci_bus_id="0000:c2:00.0",
    super_pod_sdid=12648449,
)
MODULE = Board(chips=(DIE, SISTER), multi_die_policy=MultiDiePolicy.UNION)


def test_a_module_has_the_facts_in_which_its_dies_agree() -> None:
    """And as much memory and as many cores as both together; no number of a single die."""
    device = only(MODULE)
    assert device.name == "module-5"
    assert plain(device) == {
        "type": "module",
        "model": "Ascend910A3",
        "chipName": "Ascend910",
        "productName": "Atlas 800T A2",
        "npuName": "9392",
        "cardId": 5,
        "module": "module-5",
        "topologyGroup": "ring-0",
        "multiDiePolicy": "union",
        "deviceShare": False,
        "superPodId": 7,
        "superPodServerIndex": 3,
        "numaNode": 6,
        "resource.kubernetes.io/numaNode": 6,
        "resource.kubernetes.io/pcieRoot": "pci0000:c0",
    }
    assert device.capacity == {
        "aiCores": DeviceCapacity(value="40"),
        "memCapacity": DeviceCapacity(value="64Gi"),
    }


def test_of_a_module_with_an_unknown_half_no_amount_is_told() -> None:
    """Half of it would be a guess."""
    half = replace(SISTER, memory_bytes=None, numa_node=None)
    device = only(replace(MODULE, chips=(DIE, half)))
    assert device.capacity == {"aiCores": DeviceCapacity(value="40")}
    assert "numaNode" not in plain(device)


@given(printed=st.from_regex(r"[0-9A-Za-z.+_ -]{0,70}", fullmatch=True))
def test_no_version_is_refused_by_the_server(printed: str) -> None:
    """Whatever the driver prints, what is published is strict and short."""
    version = semantic_version(printed)
    assert version is None or (len(version) <= 64 and re.match(r"\d+\.\d+\.\d+([-+].+)?$", version))


# --- health --------------------------------------------------------------------------------------


def unhealthy(level: FaultLevel) -> Board:
    """An unhealthy NPU and a well one."""
    fault = Fault(code=1, level=level, rule="", since=1_700_000_000.4)
    return Board(chips=(replace(FULL, health=ChipHealth(faults=(fault,))), BARE))


def test_an_unhealthy_npu_is_tainted_where_taints_are_kept() -> None:
    """With the time, in whole seconds; healthy NPUs have no taint."""
    well, unhealthy_one = build(unhealthy(FaultLevel.SEPARATE_NPU))
    assert well.taints == ()
    (taint,) = unhealthy_one.taints
    assert (taint.key, taint.value) == ("npu.huawei.com/fault", "SeparateNPU")
    assert (taint.effect, taint.time_added) == ("NoExecute", "2023-11-14T22:13:20Z")


def test_where_taints_are_dropped_an_npu_that_may_not_be_scheduled_is_left_out() -> None:
    """One that may be scheduled stays, without the taint."""
    dropping = ServerFeatures(taint_effects=frozenset())
    assert [d.name for d in build(unhealthy(FaultLevel.SEPARATE_NPU), dropping)] == ["npu-0"]
    devices = build(unhealthy(FaultLevel.SUB_HEALTH), dropping)
    assert [(d.name, d.taints) for d in devices] == [("npu-0", ()), ("npu-3", ())]


def test_where_the_effect_none_is_refused_severe_faults_still_taint() -> None:
    """As in Kubernetes 1.34 with its alpha feature on: a mild fault must not cost their taints."""
    severe = frozenset({TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE})
    refusing = ServerFeatures(taint_effects=severe)
    _, unhealthy_one = build(unhealthy(FaultLevel.SEPARATE_NPU), refusing)
    assert [taint.effect for taint in unhealthy_one.taints] == ["NoExecute"]
    _, mild = build(unhealthy(FaultLevel.SUB_HEALTH), refusing)
    assert (mild.name, mild.taints) == ("npu-3", ())
