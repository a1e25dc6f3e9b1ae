import pytest

from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.ascend.traits import TRAITS, family_of


@pytest.mark.parametrize(
    ("chip_name", "npu_name", "board_id", "family"),
    [
        ("310P3", "310P3", None, ChipFamily.ASCEND_310P),
        ("I2", "", None, ChipFamily.ASCEND_310P),
        ("310B4", "", None, ChipFamily.ASCEND_310B),
        ("Ascend310B1", "", None, ChipFamily.ASCEND_310B),
        ("310", "", None, ChipFamily.ASCEND_310),
        ("910B4", "910B4", 0x42, ChipFamily.ASCEND_910B),
        ("910B4-1", "910B4-1", None, ChipFamily.ASCEND_910B),
        ("910B2C", "910B2C", None, ChipFamily.ASCEND_910B),
        ("A2G3", "", None, ChipFamily.ASCEND_910B),
        ("910A", "", None, ChipFamily.ASCEND_910),
        ("910ProB", "", None, ChipFamily.ASCEND_910),
        ("910B", "", None, ChipFamily.ASCEND_910),
        ("Ascend910", "9392", 0xB0, ChipFamily.ASCEND_910_A3),
        ("Ascend910", "", 0xB3, ChipFamily.ASCEND_910_A3),
        ("Ascend910", "9362", None, ChipFamily.ASCEND_910_A3),
        ("Ascend910", "", 0x01, ChipFamily.ASCEND_910),
        ("910B3", "910B3", 0xB0, ChipFamily.ASCEND_910_A3),
        ("910_9392", "", 0x83, ChipFamily.ASCEND_910_A3),
        ("Ascend950PR", "", None, ChipFamily.ASCEND_950),
        ("950PR_9589", "", None, ChipFamily.ASCEND_950),
        ("950DT_9591", "", 0x29, ChipFamily.ASCEND_950),
        ("Ascend950DT_9591", "", 0x29, ChipFamily.ASCEND_950),
        ("Ascend950PR", "", 0x81, ChipFamily.ASCEND_950),
    ],
)
def test_a_chips_names_and_board_tell_its_family(
    chip_name: str, npu_name: str, board_id: int | None, family: ChipFamily
) -> None:
    """Every name that the vendor's tools know is of the family they say, A3 by its board."""
    assert family_of(chip_name, npu_name=npu_name, board_id=board_id) is family


def test_an_unheard_of_chip_has_no_family() -> None:
    """Nothing is guessed of a chip that came after this driver."""
    assert family_of("XPU7") is None


@pytest.mark.parametrize("family", ChipFamily)
def test_each_family_has_traits(family: ChipFamily) -> None:
    """A daemon that finds such a chip would end without them."""
    assert family in TRAITS
