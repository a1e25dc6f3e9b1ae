"""What makes a chip one of a family, and every place that must know each family."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.ascend.test_splits import CHIPS
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.ascend.traits import TRAITS, family_of
from trio_npu_dra.lab.simulator import load_profile, profile_names

ROOT: Final = Path(__file__).parents[2]

NAMES: Final = [
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
]


@pytest.mark.parametrize(("chip_name", "npu_name", "board_id", "family"), NAMES)
def test_a_chips_names_and_board_tell_its_family(
    chip_name: str, npu_name: str, board_id: int | None, family: ChipFamily
) -> None:
    """Every name that the vendor's tools know is of the family they say, A3 by its board."""
    assert family_of(chip_name, npu_name=npu_name, board_id=board_id) is family


def test_an_unheard_of_chip_has_no_family() -> None:
    """Nothing is guessed of a chip that came after this driver."""
    assert family_of("XPU7") is None


def boards_of(family: ChipFamily) -> list[str]:
    """The profiles of simulated boards with chips of the family."""
    profiles = map(load_profile, profile_names())
    return [
        one.name
        for one in profiles
        if family
        is family_of(one.chip.name, npu_name=one.chip.npu_name, board_id=one.board.board_id)
    ]


def has_golden_facts(family: ChipFamily) -> bool:
    """Whether the table that is written from the vendor's documents has a board and containers."""
    table = yaml.safe_load((ROOT / "tests/cli/families.yaml").read_text())
    models = {board["model"] for board in table["boards"].values()}
    return family in models and family in table["containers"]


def may_have_a_class(family: ChipFamily) -> bool:
    """Whether the chart's schema takes a DeviceClass for it."""
    schema = json.loads((ROOT / "charts/trio-npu-dra/values.schema.json").read_text())
    classes = schema["properties"]["deviceClasses"]["properties"]
    return family in classes["families"]["properties"]


PLACES: Final[Mapping[str, Callable[[ChipFamily], object]]] = {
    "trio_npu_dra/ascend/traits.py: a row of TRAITS": lambda family: family in TRAITS,
    "tests/ascend/test_families.py: a row of NAMES": lambda family: any(
        row[3] is family for row in NAMES
    ),
    "trio_npu_dra/lab/simulator/profiles: a board": boards_of,
    "tests/cli/families.yaml: a board and what its containers get": has_golden_facts,
    "tests/ascend/test_splits.py: a row of CHIPS, if it can be split": lambda family: (
        family in TRAITS
        and (not TRAITS[family].splits or family in {row[0] for row in CHIPS.values()})
    ),
    "k8s/examples/device-classes.yaml: a class": lambda family: (
        f'model == "{family}"' in (ROOT / "k8s/examples/device-classes.yaml").read_text()
    ),
    "charts/trio-npu-dra/values.schema.json: a class (just generated)": may_have_a_class,
}
"""What each family needs beside its member of `ChipFamily`, in the order of writing it."""


@pytest.mark.parametrize("family", ChipFamily)
def test_each_place_knows_the_family(family: ChipFamily) -> None:
    """The failure names the files that a new family still needs."""
    missing = [place for place, knows in PLACES.items() if not knows(family)]
    assert not missing, "\n".join((f"{family} is missing in:", *missing))


def test_no_other_module_names_a_family() -> None:
    """The rest of the package reads traits; an example in a message may name one."""
    package = ROOT / "trio_npu_dra"
    named = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in package.rglob("*.py")
        if path != package / "ascend/traits.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"(?<!USUAL\[)ChipFamily\.[A-Z]", line)
    ]
    assert not named, "\n".join(("make a column of TRAITS of it:", *named))
