"""Decides by names and board which generation a chip belongs to. Pure.

Source: the naming rules of mind-cluster's device manager (api/default_name.go); for a 950 also the
names that Huawei's driver looks for, `950PR_95..` and `950DT_95..`.
"""

from __future__ import annotations

import re

from trio_npu_dra.ascend.model import ChipFamily

# A3 chips have the chip name "Ascend910" like the first 910. The board tells them apart, whatever
# the names say (mind-cluster), or npu_name where no board id is told.
_A3_BOARDS = frozenset({0xB0, 0xB1, 0xB2, 0xB3, 0xB4, 0x81, 0x83, 0xD1, 0xD3})
_A3_CHIP_NAME = re.compile(r"(Ascend)?910$")
_950_CHIP_NAME = re.compile(r"(Ascend)?950")
_A3_NPU_NAME = re.compile(r"93\d\d")

# The order matters: an earlier rule takes names that a later one would match too.
_RULES: tuple[tuple[re.Pattern[str], ChipFamily], ...] = (
    (re.compile(r"(310P\d?|I2\d?)"), ChipFamily.ASCEND_310P),
    (re.compile(r".*310B"), ChipFamily.ASCEND_310B),
    (re.compile(r".*310"), ChipFamily.ASCEND_310),
    (re.compile(r"(910B\d|A2G\d)"), ChipFamily.ASCEND_910B),
    (re.compile(r"(Ascend)?910"), ChipFamily.ASCEND_910),
)


def family_of(
    chip_name: str, *, npu_name: str = "", board_id: int | None = None
) -> ChipFamily | None:
    """The chip's family; None for an unknown chip.

    Args:
        chip_name: As DCMI prints it, such as `910B4` or `Ascend910`.
        npu_name: Such as `9392`; empty if the library does not know it.
        board_id: The board's kind; None if the library does not tell it. One that was not answered
            must be asked for again: without it the family is a guess.
    """
    if _950_CHIP_NAME.match(chip_name):  # has an API of its own, and board ids of its own
        return ChipFamily.ASCEND_950
    is_named_a3 = _A3_CHIP_NAME.match(chip_name) and _A3_NPU_NAME.match(npu_name)
    if board_id in _A3_BOARDS or is_named_a3:
        return ChipFamily.ASCEND_910_A3
    return next((family for rule, family in _RULES if rule.match(chip_name)), None)
