"""A chip, and what is read of it when it is unhealthy."""

from __future__ import annotations

from trio_npu_dra.ascend.dcmi.types import ChipRef
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
