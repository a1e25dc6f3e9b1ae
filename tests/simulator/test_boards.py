"""Boards of each kind: the calls that their chips answer, and those that they do not."""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from trio_npu_dra.lab.simulator import create_board, load_profile, profile_names
from trio_npu_dra.lab.simulator.profile import PROFILES

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


def test_some_calls_are_for_910b_and_a3(dcmi: RawDcmi, kind: Kind) -> None:
    """These calls give utilisation in one call, now or over a period."""
    expected = 0 if kind.has_910b_calls else NOT_SUPPORT
    assert code(dcmi, MULTI, kind.card, 0) == expected
    out = ctypes.create_string_buffer(4096)
    assert [dcmi.code(f"{MULTI}_period", kind.card, 0, out, period) for period in (1, 0)] == [
        expected,
        -8001,
    ]


def test_a_card_can_be_reset_from_outside_on_910b_and_a3(dcmi: RawDcmi, kind: Kind) -> None:
    """On A3 together with the other card of its two."""
    state = code(dcmi, "dcmi_get_device_outband_channel_state", kind.card, 0)
    assert state == (0 if kind.has_910b_calls else NOT_SUPPORT)
    brother = "dcmi_get_netdev_brother_device"
    assert code(dcmi, brother, kind.card, 0) == (0 if kind.profile == "a3-16" else NOT_SUPPORT)
    if kind.profile == "a3-16":
        assert [dcmi.number(brother, card, 1) for card in (2, 3)] == [3, 2]


def test_the_link_between_dies_is_told_on_a3(dcmi: RawDcmi, kind: Kind) -> None:
    """It has no errors; other cards have no such link."""
    told = (0, bytes(12)) if kind.profile == "a3-16" else (NOT_SUPPORT, b"")
    assert dcmi.device_info(kind.card, 0, 56, 0) == told


def test_each_memory_has_a_clock(dcmi: RawDcmi, kind: Kind) -> None:
    """As have the cores; a number of no clock is refused, and memory that is not there has none."""
    clock = "dcmi_get_device_frequency"
    answers = {which: code(dcmi, clock, kind.card, 0, which) for which in (1, 6)}
    assert {which for which, answer in answers.items() if answer == 0} == {
        {DDR: 1, HBM: 6}[memory] for memory in kind.ecc
    }
    now, rated = (dcmi.number(clock, kind.card, 0, which) for which in (7, 9))
    assert 0 < now < rated
    assert code(dcmi, clock, kind.card, 0, 13) == -8001
    assert 50 < dcmi.number("dcmi_get_device_voltage", kind.card, 0) < 120


def test_a_910_has_ddr_beside_its_hbm(make_board: MakeBoard, load: Load) -> None:
    """Its memory call is answered, as mind-cluster expects."""
    info = load(make_board("910a-8").library).record("dcmi_get_device_memory_info_v3", 0, 0)
    size, available = struct.unpack_from("=QQ", info)
    assert 0 < available < size < 32768


def test_cpu_affinity_is_for_910b(dcmi: RawDcmi, kind: Kind) -> None:
    """310P, 910, and an A3 with the main board of a SuperPoD do not support it."""
    length = ctypes.c_int()
    answer = dcmi.code(
        AFFINITY, kind.card, 0, ctypes.create_string_buffer(32), ctypes.byref(length)
    )
    assert answer == (0 if kind.chip.startswith("910B") else NOT_SUPPORT)


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


def test_a_card_has_the_label_of_its_first_chip(dcmi: RawDcmi, kind: Kind) -> None:
    """Both calls give the same five texts; a missing card has "NA"."""
    out = [ctypes.create_string_buffer(1280) for _ in range(3)]
    assert dcmi.code("dcmi_get_device_elabel_info", kind.card, 0, out[0]) == 0
    assert dcmi.code("dcmi_get_card_elabel_v2", kind.card, out[1]) == 0
    assert out[0].raw == out[1].raw
    assert dcmi.code("dcmi_get_card_elabel_v2", 63, out[2]) == -8001
    assert out[2].raw[1024:1027] == b"NA\0"


def test_a_310_tells_of_no_faults(make_board: MakeBoard, load: Load) -> None:
    """It has no fault events."""
    dcmi = load(make_board("300i-3010-1").library)
    unfiltered = (ctypes.c_ubyte * 48)()
    event = ctypes.create_string_buffer(4096)
    assert dcmi.code("dcmi_get_fault_event", -1, -1, 0, unfiltered, event) == NOT_SUPPORT


def test_a_box_has_two_domains(make_board: MakeBoard, load: Load) -> None:
    """Eight chips each."""
    dcmi = load(make_board("910b2c-16").library)
    links = [dcmi.number("dcmi_get_topo_info_by_device_id", 6, 0, n, 0) for n in range(16)]
    assert links == [3] * 6 + [0] + [3] + [1] * 8


def test_a_310b_is_on_no_pci_bus(make_board: MakeBoard, load: Load) -> None:
    """Neither the library nor sysfs has an address."""
    board = make_board("200i-a2-1")
    dcmi = load(board.library)
    assert code(dcmi, "dcmi_get_device_pcie_info_v2", 0, 0) == NOT_SUPPORT
    assert list((board.sysfs_root / "bus/pci/devices").iterdir()) == []


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


def test_64_processes_are_listed(make_board: MakeBoard, load: Load) -> None:
    """The library writes up to 64, whatever the manual says; the call has no length."""
    board = make_board("910b4-8")
    dcmi = load(board.library)
    with board.control() as control:
        control.set_processes(1, [(1000 + n, n << 20) for n in range(64)])
    count, processes = ctypes.c_int(), ctypes.create_string_buffer(64 * 16)
    function = "dcmi_get_device_resource_info"
    assert dcmi.code(function, 1, 0, processes, ctypes.byref(count)) == 0
    found = [struct.unpack_from("@iL", processes.raw, 16 * n) for n in range(count.value)]
    assert found == [(1000 + n, n << 20) for n in range(64)]


@pytest.fixture
def changed_board(
    tmp_path: Path, simulator: Path, load: Load
) -> Callable[[Callable[[dict[str, Any]], object]], RawDcmi]:
    """The guide's board after a change of its profile."""

    def make(change: Callable[[dict[str, Any]], object]) -> RawDcmi:
        data = json.loads((PROFILES / "910b4-8.json").read_text())
        change(data)
        path = tmp_path / "profile.json"
        path.write_text(json.dumps(data))
        board = create_board(load_profile(path), tmp_path / "board", prebuilt=simulator)
        return load(board.library)

    return make


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [("0-23,48-71,96-119,144-167,1", 0), ("0-23,48-71,96-119,144-167,192-215", -8004)],
)
def test_a_cpu_list_has_31_characters_at_most(
    changed_board: Callable[[Callable[[dict[str, Any]], object]], RawDcmi], cpus: str, expected: int
) -> None:
    """The library assumes a buffer of 32 bytes: a longer list is refused."""
    dcmi = changed_board(lambda data: data["cpus"].update({"6": cpus}))
    out, length = ctypes.create_string_buffer(b"\xee" * 32, 32), ctypes.c_int()
    assert dcmi.code(AFFINITY, 0, 0, out, ctypes.byref(length)) == expected
    assert (out.raw == b"\xee" * 32) == (expected != 0)


def test_without_a_numa_node_the_cpus_are_those_of_node_0(
    changed_board: Callable[[Callable[[dict[str, Any]], object]], RawDcmi],
) -> None:
    """If firmware does not say, sysfs has -1, which the library takes for node 0."""
    dcmi = changed_board(lambda data: data["devices"][0].pop("numaNode"))
    out, length = ctypes.create_string_buffer(32), ctypes.c_int()
    assert dcmi.code(AFFINITY, 0, 0, out, ctypes.byref(length)) == 0
    assert out.value == b"0-23"
