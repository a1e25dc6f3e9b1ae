"""The simulated library through raw calls: the bytes that each writes, and their places."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

import pytest

from trio_npu_dra.lab.simulator import SimulatedBoard, simulated_functions

if TYPE_CHECKING:
    from tests.simulator.conftest import Load, MakeBoard, RawDcmi

NOT_SUPPORT = -8255
UNKNOWN_HEALTH = 0xFFFFFFFF


def test_every_function_of_the_source_is_exported(dcmi: RawDcmi) -> None:
    """Those of the first generation that control accepts are exactly the library's symbols."""
    functions = [name for name in simulated_functions() if name.startswith("dcmi_")]
    assert len(functions) > 40
    for function in functions:
        assert dcmi.cdll[function]
    assert not hasattr(dcmi.cdll, "board_lock")


@pytest.mark.parametrize(
    ("function", "arguments", "size"),
    [
        ("dcmi_get_device_chip_info", (), 100),
        ("dcmi_get_device_chip_info_v2", (), 132),
        ("dcmi_get_device_pcie_info_v2", (), 64),
        ("dcmi_get_device_board_info", (), 16),
        ("dcmi_get_device_die_v2", (1,), 20),
        ("dcmi_get_device_elabel_info", (), 1280),
        ("dcmi_get_device_multi_utilization_rate", (), 16),
        ("dcmi_get_device_ecc_info", (2,), 28),
        ("dcmi_get_device_hbm_info", (), 32),
    ],
)
def test_a_struct_has_the_vendors_size(
    dcmi: RawDcmi, function: str, arguments: tuple[int, ...], size: int
) -> None:
    """A call writes exactly the vendor's number of bytes, because a caller's buffer has no more."""
    if function == "dcmi_get_device_elabel_info":
        size = 1024 + len("SIM00000003") + 1  # the rest of a text buffer stays unchanged
    assert len(dcmi.record(function, 3, 0, *arguments)) == size


def test_chip_is_named_with_its_cores(dcmi: RawDcmi) -> None:
    """Names are C texts in fields of 32 bytes, the core count follows them."""
    info = dcmi.record("dcmi_get_device_chip_info_v2", 0, 0)
    kind, name, version, cores, npu = struct.unpack("=32s32s32sI32s", info)
    texts = [text.rstrip(b"\0").decode() for text in (kind, name, version, npu)]
    assert (texts, cores) == (["Ascend", "910B4", "V1", "910B4"], 20)


def test_pci_place_and_ids(dcmi: RawDcmi) -> None:
    """The v2 call gives the vendor first, then the address."""
    info = dcmi.record("dcmi_get_device_pcie_info_v2", 6, 0)
    assert struct.unpack("=4Ii3I", info[:32]) == (0x19E5, 0x200, 0xD802, 0x100, 0, 0x82, 0, 0)


def test_board_ids(dcmi: RawDcmi) -> None:
    """One call gives board, PCB, BOM and slot; the main board has its own call."""
    info = dcmi.record("dcmi_get_device_board_info", 5, 0)
    assert struct.unpack("=4I", info) == (0x41, 3, 1, 5)
    assert dcmi.number("dcmi_get_mainboard_id", 5, 0) == 6


def test_die_id_is_the_vector_dies_only(dcmi: RawDcmi) -> None:
    """NDIE is not supported on 910B."""
    die = dcmi.record("dcmi_get_device_die_v2", 3, 0, 1)
    words = "-".join(f"{word:08X}" for word in struct.unpack("=5I", die))
    assert words == "15C0C97A-20404B34-05120C64-26140003-10830004"
    out = ctypes.create_string_buffer(64)
    assert dcmi.code("dcmi_get_device_die_v2", 3, 0, 0, out) == NOT_SUPPORT


def test_numbers_map_one_into_another(dcmi: RawDcmi) -> None:
    """Card, logic and physical ids agree; logic_id has its result first."""
    logic = ctypes.c_int(-1)
    assert dcmi.code("dcmi_get_device_logic_id", ctypes.byref(logic), 5, 0) == 0
    assert logic.value == 5
    card, device = ctypes.c_int(-1), ctypes.c_int(-1)
    for function in ("logicid", "phyid"):
        name = f"dcmi_get_card_id_device_id_from_{function}"
        assert dcmi.code(name, ctypes.byref(card), ctypes.byref(device), 5) == 0
        assert (card.value, device.value) == (5, 0)
    assert dcmi.number("dcmi_get_device_phyid_from_logicid", 5) == 5
    assert dcmi.number("dcmi_get_device_logicid_from_phyid", 5) == 5


def test_cards_and_their_chips(dcmi: RawDcmi) -> None:
    """A 910B card has one chip and no MCU; the alias of the card list agrees."""
    assert dcmi.cards() == list(range(8))
    count, cards = ctypes.c_int(), (ctypes.c_int * 8)()
    assert dcmi.code("dcmi_get_card_num_list", ctypes.byref(count), cards, 8) == 0
    assert list(cards) == list(range(8))
    assert dcmi.code("dcmi_get_card_list", ctypes.byref(count), cards, 7) == -8001
    assert dcmi.number("dcmi_get_device_num_in_card", 2) == 1
    chips, mcu, cpu = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    out = [ctypes.byref(number) for number in (chips, mcu, cpu)]
    assert dcmi.code("dcmi_get_device_id_in_card", 2, *out) == 0
    assert (chips.value, mcu.value, cpu.value) == (1, -1, -1)
    assert dcmi.number("dcmi_get_device_type", 2, 0) == 0


def test_measurements_of_an_idle_chip(dcmi: RawDcmi) -> None:
    """HBM is in MB, power in 0.1 W, temperature in degrees, load in percent."""
    hbm = struct.unpack("@QIQiI", dcmi.record("dcmi_get_device_hbm_info", 1, 0))
    assert hbm == (32768, 1600, 2832, 38, 0)
    assert dcmi.number("dcmi_get_device_power_info", 1, 0) == 865
    assert dcmi.number("dcmi_get_device_temperature", 1, 0) == 38
    assert dcmi.number("dcmi_get_device_utilization_rate", 1, 0, 2) == 0


def test_versions_are_texts(dcmi: RawDcmi) -> None:
    """The versions are those of driver and DCMI."""
    assert dcmi.text("dcmi_get_driver_version") == "24.1.rc2"
    assert dcmi.text("dcmi_get_dcmi_version") == "24.1.rc2"


def test_all_pairs_of_a_910b_board_are_joined_by_hccs(dcmi: RawDcmi) -> None:
    """The links are a full mesh, and each chip with itself."""
    links = {
        (one, other): dcmi.number("dcmi_get_topo_info_by_device_id", one, 0, other, 0)
        for one in range(8)
        for other in range(8)
    }
    assert {link for (one, other), link in links.items() if one != other} == {3}
    assert {links[card, card] for card in range(8)} == {0}
    assert struct.unpack("=2I4x", dcmi.device_info(0, 0, 16, 0)[1]) == (0, 3)


def test_cpu_affinity(dcmi: RawDcmi) -> None:
    """The call gives the CPU list of the chip's NUMA node, with its length."""
    out, length = ctypes.create_string_buffer(256), ctypes.c_int()
    function = "dcmi_get_affinity_cpu_info_by_device_id"
    assert dcmi.code(function, 0, 0, out, ctypes.byref(length)) == 0
    assert (out.value, length.value) == (b"144-167", 7)


@pytest.mark.parametrize(("query", "length", "computing"), [(1, 360, 208), (2, 224, 72)])
def test_an_unsplit_chip_has_all_its_cores(
    dcmi: RawDcmi, query: int, length: int, computing: int
) -> None:
    """The vNPU queries give total and free cores, memory, AI CPUs and media engines."""
    code, resources = dcmi.device_info(0, 0, 52, query)
    assert code == 0
    assert struct.unpack_from("=2f", resources, computing) == (20.0, -1.0)
    assert struct.unpack_from("=Q", resources, computing + 24) == (32768,)
    assert struct.unpack_from("=H", resources, computing + 54) == (6,)
    media = struct.unpack_from("=6f", resources, computing + 96)
    assert media == (24, 4, 9, 2, 0, 0)  # jpegd, jpege, vpc, vdec, pngd, venc
    if query == 1:
        assert struct.unpack_from("=I", resources) == (0,)  # no vNPU
        assert resources[4:computing] == b"\xff" * (computing - 4)
    else:
        assert resources[:computing] == b"\xff" * computing
    # The rest of the caller's buffer is cleared too.
    assert resources[computing + 120 :] == b"\xff" * (len(resources) - computing - 120)
    assert len(resources) > length


def test_a_short_buffer_for_resources_is_refused(dcmi: RawDcmi) -> None:
    """A byte less than the struct is a wrong argument, and nothing is written."""
    for query, length in ((1, 360), (2, 224)):
        out, size = ctypes.create_string_buffer(length), ctypes.c_uint(length - 1)
        arguments = (0, 0, 52, query, out, ctypes.byref(size))
        assert dcmi.code("dcmi_get_device_info", *arguments) == -8001
        assert out.raw == bytes(length)


def test_what_a_910b_does_not_support(dcmi: RawDcmi) -> None:
    """Calls for other boards return "not supported"."""
    out = ctypes.create_string_buffer(256)
    assert dcmi.code("dcmi_get_product_type", 0, 0, out, 256) == NOT_SUPPORT
    assert dcmi.code("dcmi_get_device_memory_info_v3", 0, 0, out) == NOT_SUPPORT
    assert dcmi.code("dcmi_get_multi_die_policy", out) == NOT_SUPPORT
    assert dcmi.code("dcmi_set_multi_die_policy", 1) == NOT_SUPPORT
    assert dcmi.code("dcmi_get_device_utilization_rate", 0, 0, 1, out) == NOT_SUPPORT
    assert dcmi.device_info(0, 0, 12, 1)[0] == NOT_SUPPORT


def test_before_init(board: SimulatedBoard) -> None:
    """Each call returns the real library's code from before dcmi_init."""
    raw = ctypes.CDLL(str(board.library))
    out, codes = ctypes.create_string_buffer(256), (ctypes.c_uint * 128)()
    assert raw.dcmi_get_card_list(out, codes, 64) == -8005
    assert raw.dcmi_get_device_health(0, 0, out) == NOT_SUPPORT
    assert raw.dcmi_get_device_errorcode_v2(0, 0, out, codes, 128) == -8005
    assert raw.dcmi_get_device_logic_id(out, 0, 0) == -8012
    assert raw.dcmi_get_device_chip_info_v2(0, 0, out) == NOT_SUPPORT
    assert raw.dcmi_mcu_get_power_info(0, out) == -8001
    assert raw.dcmi_get_card_elabel_v2(0, ctypes.create_string_buffer(1280)) == -8012
    for function in ("multi_utilization_rate", "power_info", "share_enable"):
        assert raw[f"dcmi_get_device_{function}"](0, 0, out) == NOT_SUPPORT
    assert raw.dcmi_get_device_ecc_info(0, 0, 2, out) == NOT_SUPPORT
    kind = ctypes.c_int()
    assert raw.dcmi_get_device_type(0, 0, ctypes.byref(kind)) == 0
    assert kind.value == 0xFF


def test_an_unknown_card_is_a_wrong_argument(dcmi: RawDcmi) -> None:
    """Calls about an unlisted card fail; an unknown number does not exist."""
    out, other = ctypes.create_string_buffer(256), ctypes.c_int()
    assert dcmi.code("dcmi_get_device_temperature", 9, 0, out) == -8001
    assert dcmi.code("dcmi_get_device_logic_id", out, 9, 0) == -8001
    for number in ("logicid", "phyid"):
        function = f"dcmi_get_card_id_device_id_from_{number}"
        assert dcmi.code(function, out, ctypes.byref(other), 9) == -8008


def test_duo_has_two_chips_on_one_card_and_address(make_board: MakeBoard, load: Load) -> None:
    """A 310P has sparse card ids, DDR that differs between twins, a product name, no topology."""
    dcmi = load(make_board("300i-duo-2").library)
    out = ctypes.create_string_buffer(256)
    assert dcmi.cards() == [4, 7]
    assert dcmi.number("dcmi_get_device_num_in_card", 4) == 2
    assert dcmi.text("dcmi_get_product_type", 4, 1) == "Atlas 300I Duo"
    memory = [dcmi.record("dcmi_get_device_memory_info_v3", 4, chip) for chip in (0, 1)]
    assert [struct.unpack_from("=Q", data)[0] for data in memory] == [44280, 43693]
    pci = [dcmi.record("dcmi_get_device_pcie_info_v2", 4, chip) for chip in (0, 1)]
    assert pci[0] == pci[1]
    assert dcmi.number("dcmi_get_device_type", 4, 2) == 1  # the MCU
    assert dcmi.code("dcmi_get_device_hbm_info", 4, 0, out) == NOT_SUPPORT
    assert dcmi.code("dcmi_get_topo_info_by_device_id", 4, 0, 4, 1, out) == NOT_SUPPORT
    assert dcmi.code("dcmi_get_device_network_health", 4, 0, out) == NOT_SUPPORT


def test_a3_has_modules_in_a_super_pod(make_board: MakeBoard, load: Load) -> None:
    """An A3 has dies linked by SIO, modules by switched HCCS, ids in the super pod, a policy."""
    dcmi = load(make_board("a3-16").library)
    assert dcmi.number("dcmi_get_topo_info_by_device_id", 1, 0, 1, 1) == 6
    assert dcmi.number("dcmi_get_topo_info_by_device_id", 1, 0, 2, 0) == 7
    assert dcmi.number("dcmi_get_device_phyid_from_logicid", 5) == 5
    code, pod = dcmi.device_info(2, 1, 12, 1)
    sdid, size, pod_id, server = struct.unpack_from("=4I", pod)
    assert (code, len(pod)) == (0, 48)
    assert (sdid >> 22, sdid >> 18 & 15, sdid >> 16 & 3, sdid & 0xFFFF) == (3, 2, 1, 5)
    assert (size, pod_id, server) == (384, 7, 3)
    assert dcmi.number("dcmi_get_multi_die_policy") == 0
    assert dcmi.code("dcmi_set_multi_die_policy", 1) == 0
    assert dcmi.number("dcmi_get_multi_die_policy") == 1


def test_one_bad_die_takes_its_module_out_in_union_mode(make_board: MakeBoard, load: Load) -> None:
    """The card list lacks the whole card, unless dies are independent."""
    board = make_board("a3-16")
    dcmi = load(board.library)
    with board.control() as control:
        control.set_gone(5)
        assert dcmi.code("dcmi_init") == 0
        assert dcmi.cards() == [0, 1, 3, 4, 5, 6, 7]
        control.set_multi_die_policy(independent=True)
        assert dcmi.code("dcmi_init") == 0
        assert dcmi.cards() == list(range(8))
        assert dcmi.number("dcmi_get_device_num_in_card", 2) == 1
