"""What chips can be split into: the vendor's templates, one table for the chips that split alike.

Source: Huawei's driver, which has one list for each chip family, and several for the boards of
910B: one for boards that it does not name, which here are only those of Huawei's products. The AI
CPUs of a split 910 (16) and 910B (7), and the media engines of whole chips, follow from the
templates that are meant to be used together.

Not here are `vir03_1c_8g` of 910B and `vir01` of 910, which mind-cluster knows: the driver has
neither, and would refuse to make one. The chip itself describes partitions that a person made by
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trio_npu_dra.ascend.dcmi.types import Resources

IDS_OF_A_CHIP: Final = 16


@dataclass(frozen=True, slots=True)
class Template:
    """What a partition gets of its chip.

    Attributes:
        name: As the vendor calls it, such as `vir05_1c_8g`.
        parts: How many such partitions have all of the chip's memory.
        takes: What it uses of the chip, in the units of `Resources`.
        usable_memory_mib: What a container can use of its memory.
    """

    name: str
    parts: int
    takes: Resources
    usable_memory_mib: int


@dataclass(frozen=True, slots=True)
class SplitTable:
    """How chips of one kind are split.

    Attributes:
        templates: As the vendor lists them; sizes are those of a chip with the larger memory.
        whole: All that a chip has, except its memory.
        partitions: How many ids there are for the partitions of a chip.
        large_mib: A chip with less memory has partitions of half the size; 0 if all have the same.
    """

    templates: tuple[Template, ...]
    whole: Resources
    partitions: int = IDS_OF_A_CHIP
    large_mib: int = 0


def _has(  # one number for each column of the vendor's table
    *numbers: float, memory_mib: int | None = None
) -> Resources:
    cores, cpus, vpc, venc, vdec, jpegd, jpege, pngd = numbers
    return Resources(
        ai_cores=int(cores),
        ai_cpus=int(cpus),
        memory_mib=memory_mib,
        vpc=int(vpc),
        venc=int(venc),
        vdec=int(vdec),
        jpegd=int(jpegd),
        jpege=int(jpege),
        pngd=int(2 * pngd),
    )


def _listed(
    name: str, parts: int, memory_mib: int, *numbers: float, usable_mib: int | None = None
) -> Template:
    return Template(
        name=name,
        parts=parts,
        takes=_has(*numbers, memory_mib=memory_mib),
        usable_memory_mib=memory_mib if usable_mib is None else usable_mib,
    )


# AI cores, AI CPUs, then vpc, venc, vdec, jpegd, jpege, pngd.
SPLIT_310P: Final = SplitTable(
    templates=(
        _listed("vir01", 8, 6144, 1, 1, 1, 0, 1, 2, 1, 0),
        _listed("vir02", 4, 12288, 2, 2, 3, 1, 3, 4, 2, 0),
        _listed("vir02_1c", 4, 12288, 2, 1, 3, 0, 3, 4, 2, 0),
        _listed("vir04", 2, 24576, 4, 4, 6, 2, 6, 8, 4, 0),
        _listed("vir04_3c", 2, 24576, 4, 3, 6, 1, 6, 8, 4, 0),
        _listed("vir04_3c_ndvpp", 2, 24576, 4, 3, 0, 0, 0, 0, 0, 0),
        _listed("vir04_4c_dvpp", 2, 24576, 4, 4, 12, 3, 12, 16, 8, 0),
    ),
    whole=_has(8, 7, 12, 3, 12, 16, 8, 0),
    partitions=8,
    large_mib=32768,
)
SPLIT_910: Final = SplitTable(
    templates=(
        _listed("vir02", 16, 2048, 2, 1, 1, 0, 1, 1, 0, 1.5),
        _listed("vir04", 8, 4096, 4, 1, 2, 0, 2, 2, 1, 3),
        _listed("vir08", 4, 8192, 8, 3, 4, 0, 4, 4, 2, 6),
        _listed("vir16", 2, 16384, 16, 7, 8, 0, 8, 8, 4, 12),
    ),
    whole=_has(32, 16, 16, 0, 16, 16, 8, 24),
    large_mib=32768,
)
_24_CORES: Final = SplitTable(
    templates=(
        _listed("vir12_3c_32g", 2, 32768, 12, 3, 5, 0, 1, 14, 2, 0, usable_mib=30720),
        _listed("vir06_1c_16g", 4, 16384, 6, 1, 2, 0, 0, 7, 1, 0, usable_mib=15360),
    ),
    whole=_has(24, 7, 10, 0, 2, 28, 4, 0),
)
_20_CORES_64G: Final = SplitTable(
    templates=(
        _listed("vir10_3c_32g", 2, 32768, 10, 3, 4, 0, 1, 12, 2, 0, usable_mib=30720),
        _listed("vir05_1c_16g", 4, 16384, 5, 1, 2, 0, 0, 6, 1, 0, usable_mib=15360),
    ),
    whole=_has(20, 7, 9, 0, 2, 24, 4, 0),
)
_20_CORES: Final = SplitTable(
    templates=(
        _listed("vir10_3c_16g", 2, 16384, 10, 3, 4, 0, 1, 12, 2, 0, usable_mib=14336),
        _listed("vir10_4c_16g_m", 2, 16384, 10, 4, 9, 0, 2, 24, 4, 0, usable_mib=14336),
        _listed("vir10_3c_16g_nm", 2, 16384, 10, 3, 0, 0, 0, 0, 0, 0, usable_mib=14336),
        _listed("vir05_1c_8g", 4, 8192, 5, 1, 2, 0, 0, 6, 1, 0, usable_mib=7168),
    ),
    whole=_has(20, 7, 9, 0, 2, 24, 4, 0),
)

SPLITS_910B: Final[Mapping[int | None, SplitTable]] = {
    board: table
    for table, boards in (
        (_24_CORES, (0x13, 0x30, 0x31, 0x39, 0x3A, 0x43, 0x50, 0x51)),
        (_20_CORES_64G, (0x10, 0x12, 0x32, 0x38, 0x3B, 0x3E, 0x42, 0x53)),
        (_20_CORES, (0x11, 0x28, 0x29, 0x33, 0x34, 0x37, 0x3C, 0x3D, 0x40, 0x41, 0x52, 0x54, 0x69)),
    )
    for board in boards
}
"""By board id."""
SPLITS_A3: Final[Mapping[int | None, SplitTable]] = {24: _24_CORES, 20: _20_CORES_64G}
"""By the number of AI cores."""
