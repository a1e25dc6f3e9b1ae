"""Boards of each kind: the calls that their chips answer, and those that they do not."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, NamedTuple

import pytest

from trio_npu_dra.lab.simulator import load_profile, profile_names

if TYPE_CHECKING:
    from tests.simulator.conftest import Load, MakeBoard, RawDcmi

NOT_SUPPORT = -8255
DDR, SRAM, HBM, NPU = range(4)
AFFINITY = "dcmi_get_affinity_cpu_info_by_device_id"
POWER = "dcmi_get_device_power_info"
CARD_POWER = "dcmi_mcu_get_power_info"
SHARE = "dcmi_get_device_share_enable"
MULTI = "dcmi_get_device_multi_utilization_rate"


class Kind(NamedTuple):
    """A board: its first card, its chips' name, and the calls that they answer."""

    profile: str
    card: int
    chip: str
    cores: int
    memory_mb: int
    board_id: int
    ecc: set[int]
    has_910b_calls: bool
    power_by_mcu: bool
    knows_memory_of_vnpus: bool = True
    has_vnpus: bool = True


KINDS = [
    Kind("200i-a2-1", 0, "310B1", 1, 11577, 0x5, {DDR}, False, False, has_vnpus=False),
    Kind("300i-3010-1", 3, "310", 0, 8192, 0x4, {DDR}, False, True, has_vnpus=False),
    Kind("300i-a2-2", 2, "910B4", 20, 32768, 0x28, {HBM}, True, False),
    Kind("300i-duo-2", 4, "310P3", 8, 44280, 0x97, {DDR}, False, True),
    Kind("300i-pro-2", 1, "310P3", 8, 21527, 0x64, {DDR}, False, True),
    Kind("300v-2", 2, "310P3", 8, 21527, 0x6E, {DDR}, False, True),
    Kind("910a-8", 0, "910A", 32, 32768, 0x2, {DDR, HBM}, False, False, False),
    Kind("910b2-8", 0, "910B2", 24, 65536, 0x43, {HBM}, True, False),
    Kind("910b2c-16", 0, "910B2C", 24, 65536, 0x51, {HBM}, True, False),
    Kind("910b3-8", 0, "910B3", 20, 65536, 0x42, {HBM}, True, False),
    Kind("910b4-8", 0, "910B4", 20, 32768, 0x41, {HBM}, True, False),
    Kind("a3-16", 0, "Ascend910", 24, 65536, 0xB0, {HBM}, True, False),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.profile)
def kind(request: pytest.FixtureRequest) -> Kind:
    """One kind after the other."""
    found: Kind = request.param
    return found


@pytest.fixture
def dcmi(kind: Kind, make_board: MakeBoard, load: Load) -> RawDcmi:
    """The library of a board of that kind, initialised."""
    return load(make_board(kind.profile).library)


def code(dcmi: RawDcmi, function: str, *arguments: int) -> int:
    """The return code of a call with one out-parameter."""
    return dcmi.code(function, *arguments, ctypes.create_string_buffer(4096))


def share_flags(dcmi: RawDcmi, card: int) -> list[int]:
    """Whether each of the two chips of a card may be used by several containers."""
    return [dcmi.number(SHARE, card, chip) for chip in (0, 1)]


def test_each_profile_is_a_kind() -> None:
    """No shipped profile of the first generation is left out here."""
    first = [name for name in profile_names() if load_profile(name).generation == 1]
    assert sorted(kind.profile for kind in KINDS) == first


def test_a_chip_has_its_name_cores_memory_and_board(dcmi: RawDcmi, kind: Kind) -> None:
    """The memory is HBM where the chip has it, otherwise DDR; the id identifies the board."""
    info = dcmi.record("dcmi_get_device_chip_info_v2", kind.card, 0)
    _, name, _, cores, _ = struct.unpack("=32s32s32sI32s", info)
    assert (name.rstrip(b"\0").decode(), cores) == (kind.chip, kind.cores)
    function = "hbm_info" if HBM in kind.ecc else "memory_info_v3"
    memory = dcmi.record(f"dcmi_get_device_{function}", kind.card, 0)
    assert struct.unpack_from("=Q", memory)[0] == kind.memory_mb
    board = dcmi.record("dcmi_get_device_board_info", kind.card, 0)
    assert struct.unpack_from("=I", board)[0] == kind.board_id


def test_ecc_is_told_of_the_chips_memory_alone(dcmi: RawDcmi, kind: Kind) -> None:
    """Another kind of memory is not supported, and a number beyond the kinds is wrong."""
    codes = {
        memory: code(dcmi, "dcmi_get_device_ecc_info", kind.card, 0, memory) for memory in range(6)
    }
    assert {memory for memory, answer in codes.items() if answer == 0} == kind.ecc
    assert {answer for memory, answer in codes.items() if memory not in kind.ecc} == {NOT_SUPPORT}
    assert code(dcmi, "dcmi_get_device_ecc_info", kind.card, 0, 6) == -8001


def test_power_is_told_by_the_chip_or_by_its_card(dcmi: RawDcmi, kind: Kind) -> None:
    """One of the two calls is not supported; MCUs that report power also answer the chips' call."""
    by_chip, by_card = code(dcmi, POWER, kind.card, 0), code(dcmi, CARD_POWER, kind.card)
    assert (by_chip, by_card) == ((NOT_SUPPORT, 0) if kind.power_by_mcu else (0, NOT_SUPPORT))
    if kind.power_by_mcu:
        mcu = dcmi.number("dcmi_get_device_num_in_card", kind.card)
        of_card = dcmi.number(CARD_POWER, kind.card)
        assert dcmi.number(POWER, kind.card, mcu) == of_card > 0
        assert code(dcmi, CARD_POWER, 63) == -8001


def test_vnpu_queries_know_the_memory_or_not(dcmi: RawDcmi, kind: Kind) -> None:
    """They give cores where there are vNPUs; on 910A memory and AI CPUs are unknown."""
    answer, total = dcmi.device_info(kind.card, 0, 52, 1)
    if not kind.has_vnpus:
        assert answer == NOT_SUPPORT
        return
    cores, memory, cpus = (
        struct.unpack_from(code, total, 208 + at)[0]
        for code, at in (("=f", 0), ("=Q", 24), ("=H", 54))
    )
    assert (answer, cores) == (0, kind.cores)
    if kind.knows_memory_of_vnpus:
        assert (memory, cpus) == (kind.memory_mb, 7 if "310P" in kind.chip else 6)
    else:
        assert (memory, cpus) == (0xFFFF_FFFF_FFFF_FFFF, 0xFFFF)


# --- one call on one board -----------------------------------------------------------------------


def test_utilisation_in_one_call(make_board: MakeBoard, load: Load) -> None:
    """It gives cube, vector, AI core and NPU; the NPU is at least as busy as its AI cores."""
    board = make_board("910b4-8")
    dcmi = load(board.library)
    with board.control() as control:
        control.set_utilization(2, 2, 70)
        control.set_utilization(2, 12, 30)
        control.set_utilization(2, 13, 50)
    assert struct.unpack("=4I", dcmi.record(MULTI, 2, 0)) == (70, 30, 70, 70)


def test_a_card_with_two_dies_is_shared_as_a_whole(make_board: MakeBoard, load: Load) -> None:
    """A3: the call sets both dies; if the second one is in use, the first stays changed."""
    board = make_board("a3-16")
    dcmi = load(board.library)
    with board.control() as control:
        assert dcmi.code("dcmi_set_device_share_enable", 2, 1, 1) == 0
        assert share_flags(dcmi, 2) == [1, 1]
        assert dcmi.number(SHARE, 3, 0) == 0
        control.set_share(4, enabled=False)
        assert share_flags(dcmi, 2) == [0, 0]
        control.set_processes(5, [(1, 1)])
        assert dcmi.code("dcmi_set_device_share_enable", 2, 0, 1) == -8013
        assert share_flags(dcmi, 2) == [1, 0]


def test_the_chips_of_a_duo_are_shared_one_by_one(make_board: MakeBoard, load: Load) -> None:
    """On 310P the call sets only the named chip."""
    dcmi = load(make_board("300i-duo-2").library)
    assert dcmi.code("dcmi_set_device_share_enable", 4, 1, 1) == 0
    assert share_flags(dcmi, 4) == [0, 1]
