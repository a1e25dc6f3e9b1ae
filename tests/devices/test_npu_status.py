"""Promises of `status.devices[].data`."""

from dataclasses import replace
from typing import Any

import pytest

from tests.devices.test_build import BARE, FULL
from trio_npu_dra.agent.devices.npu_status import NpuStatus, npu_status
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.offers import Offer, OfferKind
from trio_npu_dra.ascend.partition import Partition

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
    ("kind", "chips", "facts"),
    [
        (OfferKind.NPU, (BARE,), {"model": "Ascend310P", "physicalId": 0}),
        (
            OfferKind.VNPU,
            (replace(BARE, super_pod_sdid=100),),  # the address is that of the whole die
            {"model": "Ascend310P", "physicalId": 0},
        ),
        (
            OfferKind.MODULE,
            (DIE, SISTER),
            {
                "model": "Ascend910A3",
                "physicalId": 6,
                "superPodId": 7,
                "serverIndex": 2,
                "sdid": 100,
                "moduleDies": [{"physicalId": 6, "sdid": 100}, {"physicalId": 7, "sdid": 101}],
            },
        ),
    ],
)
def test_status_of_device(kind: OfferKind, chips: tuple[Chip, ...], facts: dict[str, Any]) -> None:
    """It has the known facts, and is read as it was written."""
    partition = Partition(template="vir04") if kind is OfferKind.VNPU else None
    made = npu_status(Offer(name="one", kind=kind, chips=chips, partition=partition))
    head = {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuStatus", "type": kind.value}
    assert made.to_wire() == head | {"chipName": chips[0].chip_name} | facts
    assert NpuStatus.model_validate(made.to_wire()) == made
