"""What chips can be split into: the templates of each board; pure.

Source: Huawei's driver, which has one list for each chip family, and several for the boards of
910B: one for boards that it does not name, which here are only those of Huawei's products. The AI
CPUs of a split 910 (16) and 910B (7), and the media engines of whole chips, follow from the
templates that are meant to be used together. A chip that tells its own totals is believed first.

Not here are `vir03_1c_8g` of 910B and `vir01` of 910, which mind-cluster knows: the driver has
neither, and would refuse to make one. Partitions that a person made of them are what the chip
tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Final

from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy, Resources, VnpuMode
from trio_npu_dra.ascend.model import Chip, ChipFamily

_MIB: Final = 1024 * 1024
_FIRST_ID: Final = 100
_IDS_OF_A_CHIP: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How a chip can be split.

    Attributes:
        templates: What its partitions can be, as the vendor lists them.
        whole: What there is to share out, if the chip does not tell it.
        vdev_ids: The ids that its partitions can have; there are no more partitions than ids.
    """

    templates: tuple[Template, ...]
    whole: Resources
    vdev_ids: range

    def named(self, name: str) -> Template | None:
        """The template of that name."""
        return next((each for each in self.templates if each.name == name), None)


def split_of(chip: Chip) -> Split | None:
    """How the chip can be split; None where it cannot, or its memory is not known.

    Sizes are those of the chip's own memory: a partition gets no more than its part of it, though
    the vendor's table may say more.
    """
    kind = _kind_of(chip)
    if kind is None or chip.memory_bytes is None:
        return None
    memory_mib = chip.memory_bytes // _MIB
    cores = chip.ai_cores if chip.ai_cores is not None else kind.whole.ai_cores
    first = _FIRST_ID + _IDS_OF_A_CHIP * chip.physical_id
    return Split(
        templates=tuple(_fitted(template, kind, memory_mib) for template in kind.templates),
        whole=replace(kind.whole, ai_cores=cores, memory_mib=memory_mib),
        vdev_ids=range(first, first + kind.partitions),
    )


def why_not_split(
    chip: Chip, *, policy: MultiDiePolicy | None = None, mode: VnpuMode | None = None
) -> str:
    """Why this driver cannot split the chip, in words; empty if it can.

    Args:
        chip: The chip.
        policy: The multi-die policy of the node; None where there is none, or it is not told.
        mode: Whom its vNPUs are for; None where it is not told.
    """
    if _kind_of(chip) is None:
        return f"an {chip.family} cannot be split"
    if chip.memory_bytes is None:
        return "its memory is not known"
    if "duo" in (chip.product_name or "").lower():  # mind-cluster's device plugin refuses it too
        return "the chips of a Duo can be split by hand only"
    if chip.family is ChipFamily.ASCEND_910_A3 and policy is not MultiDiePolicy.INDEPENDENT:
        return "the dies of a card go together (multi-die policy), so none can be split"
    if mode is VnpuMode.VIRTUAL_MACHINE:
        return "the node's vNPUs are for virtual machines (npu-smi set -t vnpu-mode -d 0)"
    return ""


def device_part(template: str) -> str:
    """The template's name as a part of a device name, in which there is no underscore."""
    return template.replace("_", "-")


def usable(chip: Chip, template: str, told: Resources | None) -> Resources:
    """What a container can use of a partition.

    Args:
        chip: What it is a partition of.
        template: What it was made by; of one that is not in the table only what is told is known.
        told: What the Ascend driver tells of it. The rest is as the table says; of the memory it
            may tell what the partition takes rather than what can be used, so the lesser counts.
    """
    split = split_of(chip)
    known = split.named(template) if split is not None else None
    listed = replace(known.takes, memory_mib=known.usable_memory_mib) if known else None
    if listed is None or told is None:
        return told or listed or Resources()
    memory = min(size for size in (told.memory_mib, listed.memory_mib) if size is not None)
    facts = {field.name: getattr(told, field.name) for field in fields(told)}
    return replace(
        listed,
        **{name: fact for name, fact in facts.items() if fact is not None} | {"memory_mib": memory},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Chips that are split alike.

    Attributes:
        templates: Their sizes are those of a chip with the larger memory.
        whole: But for its memory.
        partitions: How many ids there are for the partitions of a chip.
        large_mib: A chip with less memory has partitions of half the size; 0 if all have the same.
    """

    templates: tuple[Template, ...]
    whole: Resources
    partitions: int = _IDS_OF_A_CHIP
    large_mib: int = 0


def _fitted(template: Template, kind: _Kind, memory_mib: int) -> Template:
    part = memory_mib // template.parts
    half = 2 if memory_mib < kind.large_mib else 1
    listed = template.takes.memory_mib or 0
    return replace(
        template,
        takes=replace(template.takes, memory_mib=min(listed // half, part)),
        usable_memory_mib=min(template.usable_memory_mib // half, part),
    )


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
_310P: Final = _Kind(
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
_910: Final = _Kind(
    templates=(
        _listed("vir02", 16, 2048, 2, 1, 1, 0, 1, 1, 0, 1.5),
        _listed("vir04", 8, 4096, 4, 1, 2, 0, 2, 2, 1, 3),
        _listed("vir08", 4, 8192, 8, 3, 4, 0, 4, 4, 2, 6),
        _listed("vir16", 2, 16384, 16, 7, 8, 0, 8, 8, 4, 12),
    ),
    whole=_has(32, 16, 16, 0, 16, 16, 8, 24),
    large_mib=32768,
)
_24_CORES: Final = _Kind(
    templates=(
        _listed("vir12_3c_32g", 2, 32768, 12, 3, 5, 0, 1, 14, 2, 0, usable_mib=30720),
        _listed("vir06_1c_16g", 4, 16384, 6, 1, 2, 0, 0, 7, 1, 0, usable_mib=15360),
    ),
    whole=_has(24, 7, 10, 0, 2, 28, 4, 0),
)
_20_CORES_64G: Final = _Kind(
    templates=(
        _listed("vir10_3c_32g", 2, 32768, 10, 3, 4, 0, 1, 12, 2, 0, usable_mib=30720),
        _listed("vir05_1c_16g", 4, 16384, 5, 1, 2, 0, 0, 6, 1, 0, usable_mib=15360),
    ),
    whole=_has(20, 7, 9, 0, 2, 24, 4, 0),
)
_20_CORES: Final = _Kind(
    templates=(
        _listed("vir10_3c_16g", 2, 16384, 10, 3, 4, 0, 1, 12, 2, 0, usable_mib=14336),
        _listed("vir10_4c_16g_m", 2, 16384, 10, 4, 9, 0, 2, 24, 4, 0, usable_mib=14336),
        _listed("vir10_3c_16g_nm", 2, 16384, 10, 3, 0, 0, 0, 0, 0, 0, usable_mib=14336),
        _listed("vir05_1c_8g", 4, 8192, 5, 1, 2, 0, 0, 6, 1, 0, usable_mib=7168),
    ),
    whole=_has(20, 7, 9, 0, 2, 24, 4, 0),
)


def _by_board(*kinds: tuple[_Kind, Iterable[int]]) -> dict[int, _Kind]:
    return {board: kind for kind, boards in kinds for board in boards}


_910B: Final = _by_board(
    (_24_CORES, (0x13, 0x30, 0x31, 0x39, 0x3A, 0x43, 0x50, 0x51)),
    (_20_CORES_64G, (0x10, 0x12, 0x32, 0x38, 0x3B, 0x3E, 0x42, 0x53)),
    (_20_CORES, (0x11, 0x28, 0x29, 0x33, 0x34, 0x37, 0x3C, 0x3D, 0x40, 0x41, 0x52, 0x54, 0x69)),
)


def _kind_of(chip: Chip) -> _Kind | None:
    """How chips of its family and board are split; None if they are not, or not known."""
    if chip.family is ChipFamily.ASCEND_310P:
        return _310P
    if chip.family is ChipFamily.ASCEND_910:
        return _910
    if chip.family is ChipFamily.ASCEND_910B:
        return _910B.get(chip.board_id) if chip.board_id is not None else None
    if chip.family is ChipFamily.ASCEND_910_A3 and chip.ai_cores is not None:
        return {24: _24_CORES, 20: _20_CORES_64G}.get(chip.ai_cores)
    return None
