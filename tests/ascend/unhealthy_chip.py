"""A chip, and its reading when it is unhealthy."""

from __future__ import annotations

from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.model import Chip, ChipFamily

UNHEALTHY = HealthSample(codes={0x80E01801: "words"})


def npu(uuid: str | None = "DIE-0") -> Chip:
    """The NPU 0."""
    return Chip(
        ref=ChipRef(0, 0),
        physical_id=0,
        logic_id=0,
        card_id=0,
        device_id=0,
        family=ChipFamily.ASCEND_910B,
        chip_name="910B4",
        uuid=uuid,
    )


def separate(faults: NodeFaults, chip: Chip, first: float = 100.0) -> None:
    """Have a chip fail twice, 20 s apart: only a release by hand ends that."""
    for at in (first, first + 20):
        faults.of(chip).take_confirmed(UNHEALTHY, at)
        faults.of(chip).take_confirmed(HealthSample(), at + 1)
