"""Promises of `status.devices[].data`."""

from dataclasses import replace

import pytest

from tests.devices.test_build import BARE, FULL
from trio_npu_dra.agent.devices.npu_status import NpuStatus, npu_status
from trio_npu_dra.ascend.model import Chip, ChipFamily

DIE = replace(
    FULL,
    physical_id=6,
    family=ChipFamily.ASCEND_910_A3,
    chip_name="Ascend910",
    super_pod_id=7,
    super_pod_server_index=2,
    super_pod_sdid=100,
)
SISTER = replace(DIE, physical_id=7, super_pod_sdid=101)


@pytest.mark.parametrize(
    ("chips", "is_partition", "facts"),
    [
        ((BARE,), False, {"type": "npu", "model": "Ascend310P", "physicalId": 0}),
        (
            (replace(BARE, super_pod_sdid=100),),  # the address is that of the whole die
            True,
            {"type": "vnpu", "model": "Ascend310P", "physicalId": 0},
        ),
        (
            (DIE, SISTER),
            False,
            {
                "type": "module",
                "model": "Ascend910A3",
                "physicalId": 6,
                "superPodId": 7,
                "serverIndex": 2,
                "sdid": 100,
                "moduleDies": [{"physicalId": 6, "sdid": 100}, {"physicalId": 7, "sdid": 101}],
            },
        ),
    ],
    ids=["npu", "vnpu", "module"],
)
def test_status_of_device(
    chips: tuple[Chip, ...], is_partition: bool, facts: dict[str, object]
) -> None:
    """It has the known facts, and is read as it was written."""
    made = npu_status(chips, is_partition=is_partition)
    head = {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuStatus"}
    assert made.to_wire() == head | {"chipName": chips[0].chip_name} | facts
    assert NpuStatus.model_validate(made.to_wire()) == made
