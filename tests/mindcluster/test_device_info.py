"""The ConfigMap, field by field as Huawei's device plugin writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dev.site.unhealthy_boards import separated
from tests.mindcluster.chips import RESOURCE, a3, b4, duo, fault, unhealthy
from trio_npu_dra.agent.mindcluster.device_info import check_code, config_map, content, device_list
from trio_npu_dra.ascend.model import Chip, FaultLevel

NOW = 1795280460


def lists(*chips: Chip, used: int | None = None) -> dict[str, str]:
    """The lists of one resource, without its name."""
    nodes = {f"/dev/davinci{used}"}
    found = device_list({RESOURCE: chips}, nodes)
    return {key.removeprefix(RESOURCE): value for key, value in found.items()}


def faults(*chips: Chip) -> list[dict[str, Any]]:
    """The faults of some chips."""
    found: list[dict[str, Any]] = json.loads(lists(*chips)["-Fault"])
    return found


def test_each_field_of_the_config_map() -> None:
    """Name, label and keys; the values of the second are JSON texts."""
    told = content({RESOURCE: (a3(0), unhealthy(a3(1), faults=(separated(),)))}, used=())
    made = config_map(told, node_name="node-a", updated_at=NOW)

    assert (made.metadata.namespace, made.metadata.name) == (
        "kube-system",
        "mindx-dl-deviceinfo-node-a",
    )
    assert made.metadata.labels == {"mx-consumer-cim": "true"}
    data = dict(made.data or {})
    info = json.loads(data.pop("DeviceInfoCfg"))
    assert data == {"ManuallySeparateNPU": "Ascend910-1"}
    assert info.pop("CheckCode") == check_code(info["DeviceInfo"])
    assert info["DeviceInfo"].keys() == {"DeviceList", "UpdateTime"}
    assert info["DeviceInfo"].pop("UpdateTime") == NOW
    listed = info.pop("DeviceInfo")["DeviceList"]
    assert listed.keys() == {
        f"{RESOURCE}{end}"
        for end in ("", "-Unhealthy", "-NetworkUnhealthy", "-Recovering", "-Fault")
    }
    assert info == {"SuperPodID": 7, "ServerIndex": 3}


def test_the_check_code_is_that_of_a_go_program() -> None:
    """Made by Go 1.26: SHA-256 of json.Marshal of a struct with a map and an int64."""
    assert check_code({"DeviceList": {}, "UpdateTime": NOW}) == (
        "e6575d3cf371bc4417131f70818a292d820f60cd011e0c1ea7f598fd1f3fb1a3"
    )
    unsorted = {
        RESOURCE: "Ascend910-0,Ascend910-2",
        f"{RESOURCE}-Unhealthy": "Ascend910-1",
        f"{RESOURCE}-Fault": '[{"npu_name":"Ascend910-1","fault_code":"<80E01801>&"}]',
        "huawei.com/Ascend310P": '\u00fc\u2028\t"',
    }
    assert check_code({"UpdateTime": NOW + 1, "DeviceList": unsorted}) == (
        "acabef37089b541fbed7507aae4262eb5a6db61ef5b206b7da3dee5685032ead"
    )


def test_free_is_what_is_healthy_and_no_pod_has() -> None:
    """A chip whose health cannot be read is no longer free, and no reason to end a pod."""
    chips = (
        b4(0),
        b4(1),
        unhealthy(b4(2), faults=(fault(),)),
        unhealthy(b4(3), unmonitored="it hangs"),
    )
    assert lists(*chips, used=1) | {"-Fault": ""} == {
        "": "Ascend910-0",
        "-Unhealthy": "Ascend910-2",
        "-NetworkUnhealthy": "",
        "-Recovering": "Ascend910-3",
        "-Fault": "",
    }


def test_a_chip_that_is_to_get_no_new_work_is_healthy_while_a_pod_has_it() -> None:
    """Else its pod would be ended."""
    chip = unhealthy(b4(0), faults=(fault(level=FaultLevel.PRE_SEPARATE_NPU),))
    assert (lists(chip)[""], lists(chip)["-Unhealthy"]) == ("", "Ascend910-0")
    assert (lists(chip, used=0)[""], lists(chip, used=0)["-Unhealthy"]) == ("", "")
    worse = unhealthy(b4(0), faults=(fault(level=FaultLevel.SEPARATE_NPU),))
    assert lists(worse, used=0)["-Unhealthy"] == "Ascend910-0"


def test_trouble_of_the_network_does_not_make_a_chip_unhealthy() -> None:
    """Volcano keeps distributed jobs away from it."""
    chip = unhealthy(b4(0), network="no link")
    assert lists(chip)[""] == lists(chip)["-NetworkUnhealthy"] == "Ascend910-0"
    (told,) = faults(chip)
    assert (told["fault_type"], told["fault_code"]) == ("CardNetworkUnhealthy", "81078603")
    assert told["fault_level"] == "NotHandleFault"
    when = {"fault_time": 0, "fault_level": "NotHandleFault"}  # no event tells the time
    assert told["fault_time_and_level_map"] == {"81078603": when}


def test_each_field_of_a_fault() -> None:
    """The worst of several is first; times are in milliseconds."""
    mild = fault(0x80E21007, FaultLevel.NOT_HANDLE, since=NOW + 0.5)
    assert faults(unhealthy(b4(5), faults=(fault(since=NOW), mild))) == [
        {
            "fault_type": "CardUnhealthy",
            "npu_name": "Ascend910-5",
            "large_model_fault_level": "RestartBusiness",
            "fault_level": "RestartBusiness",
            "fault_handling": "RestartBusiness",
            "fault_code": "80E01801,80E21007",
            "fault_time_and_level_map": {
                "80E01801": {"fault_time": NOW * 1000, "fault_level": "RestartBusiness"},
                "80E21007": {"fault_time": NOW * 1000 + 500, "fault_level": "NotHandleFault"},
            },
        }
    ]


@pytest.mark.parametrize(
    ("code", "written"),
    [
        (0x80E01801, "80E01801"),
        (0x020001002, "020001002"),
        (0x020000002, "020000002"),
        (0x110001024, "110001024"),
    ],
)
def test_codes_are_written_as_mindcluster_does(code: int, written: str) -> None:
    """ClusterD compares them as texts."""
    (told,) = faults(unhealthy(b4(5), faults=(fault(code),)))
    assert told["fault_code"] == written


def test_lists_of_an_inference_card() -> None:
    """It has no network of its own."""
    found = device_list({"huawei.com/Ascend310P": (duo(0),)}, ())
    name = "huawei.com/Ascend310P"
    assert found == {name: "Ascend310P-0", f"{name}-Unhealthy": "", f"{name}-Fault": "[]"}


def test_other_resources_are_not_told() -> None:
    """Nor chips of another family than the resource's; one without chips is empty."""
    assert device_list({"example.com/odd": (b4(0),)}, ()) == {}
    nothing = {"": "", "-Unhealthy": "", "-Fault": "[]"}
    assert device_list({RESOURCE: ()}, ()) == {
        f"{RESOURCE}{end}": it for end, it in nothing.items()
    }
