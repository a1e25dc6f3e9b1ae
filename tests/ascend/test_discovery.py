"""What is found out about the node's NPUs."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface

import pytest

from dev.rig.looking import SERVER, Look, changed
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.types import (
    ChipRef,
    Link,
    MultiDiePolicy,
)
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily, ChipNetwork
from trio_npu_dra.lab.simulator import BoardControl, load_profile
from trio_npu_dra.lab.simulator.profile import MemoryFacts

MIB = 1024**2
GIB = 1024**3


async def test_an_npu_has_all_its_facts(board: Board) -> None:
    """Names, ids, memory, place and links of an NPU are what library and sysfs say."""
    assert board.driver_version == "24.1.rc2"
    assert board.unanswered == ()
    npu = board.by_name["npu-0"]
    assert npu.shares_out is not None
    assert (npu.shares_out.ai_cores, npu.shares_out.memory_mib) in {(20, None), (20, 32 << 10)}
    assert replace(npu, shares_out=None) == Chip(
        ref=ChipRef(0, 0),
        physical_id=0,
        logic_id=0,
        card_id=0,
        device_id=0,
        family=ChipFamily.ASCEND_910B,
        chip_name="910B4",
        board_id=0x41,
        uuid="15C0C977-00404B31-A5120C63-26140000-10830001",
        memory_bytes=32 * GIB,
        ai_cores=20,
        pci_bus_id="0000:c1:00.0",
        pcie_root="pci0000:c0",
        numa_node=6,
        topology_group="ring-0",
        device_share=False,
        network=ChipNetwork(
            addresses=(ip_interface("192.168.100.101/24"),), mac="02:4e:c0:a8:64:65"
        ),
    )


async def test_the_same_facts_make_the_same_board(board: Board, look: Look) -> None:
    """A second look at an unchanged node is equal to the first."""
    assert await look(board) == board


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
async def test_an_a3_without_a_board_id_is_known_by_its_name(
    look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """One of the two is enough."""
    dcmi.init()
    control.set_return_code("dcmi_get_device_board_info", -8255)
    assert {npu.family for npu in (await look()).chips} == {ChipFamily.ASCEND_910_A3}


@pytest.mark.parametrize("profile", [changed(load_profile("a3-16"), 2, super_pod={"id": 0})])
async def test_what_is_set_on_a_board_is_read(
    look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """How dies and chips may be handed out; the first super pod is one."""
    dcmi.init()
    control.set_multi_die_policy(independent=True)
    control.set_share(0, enabled=True)
    board = await look()
    assert board.multi_die_policy is MultiDiePolicy.INDEPENDENT
    assert [(npu.device_share, npu.super_pod_id) for npu in board.chips] == [(True, 0)] * 2


@pytest.mark.parametrize(
    "profile", [changed(load_profile("a3-16"), 2, super_pod={"id": 0xFFFF_FFFF})]
)
async def test_an_a3_that_is_in_no_super_pod_has_no_place_in_one(board: Board) -> None:
    """The library says so by a number."""
    places = {
        (npu.super_pod_id, npu.super_pod_server_index, npu.super_pod_sdid) for npu in board.chips
    }
    assert places == {(None, None, None)}


@pytest.mark.parametrize(
    ("profile", "kinds"),
    [
        (load_profile("950-pod-8"), {(0x07, 1, 2)}),
        (changed(load_profile("950-pod-8"), 2, super_pod={"id": 0xFFFF_FFFF}), {(0x07, 1, None)}),
        (load_profile("950-card-4"), {(0x6A, None, None)}),
        (load_profile("a3-16"), {(None, None, None)}),
    ],
)
async def test_a_950_tells_its_main_board_super_pod_and_rack(
    board: Board, kinds: set[tuple[int | None, ...]]
) -> None:
    """By which HCCL's topology file is found, also of a server that is in no super pod."""
    assert {(npu.mainboard_id, npu.super_pod_type, npu.rack_id) for npu in board.chips} == kinds


A3_WITHOUT_SWITCH = changed(
    load_profile("a3-16"), 4, links={"between_cards": "phb", "within_card": "sio"}
)
"""Two cards whose dies reach each other on their card only."""


@pytest.mark.parametrize(
    ("profile", "groups"),
    [
        (load_profile("910a-8"), ["ring-0"] * 4 + ["ring-1"] * 4),
        (A3_WITHOUT_SWITCH, ["ring-0"] * 2 + ["ring-1"] * 2),
        (changed(SERVER, 2), ["ring-0"] * 2),
        (changed(SERVER, 1), ["ring-0"]),
        (changed(SERVER, 1, board={"board_id": 0x28}), [None]),
    ],
    ids=["910", "two rings", "two chips", "one chip", "one chip without HCCS"],
)
async def test_links_or_the_board_decide_the_topology_group(
    board: Board, groups: list[str | None]
) -> None:
    """The first 910 has no links to ask for, and one chip alone has no link."""
    assert [npu.topology_group for npu in board.chips] == groups


FACTS = [
    ("dcmi_get_device_die_v2", "uuid"),
    ("dcmi_get_device_hbm_info", "memory_bytes"),
    ("dcmi_get_device_pcie_info_v2", "pci_bus_id"),
    ("dcmi_get_device_share_enable", "device_share"),
]


@pytest.mark.parametrize(("function", "fact"), FACTS)
async def test_a_fact_that_is_not_supported_is_none(
    board: Board, look: Look, control: BoardControl, function: str, fact: str
) -> None:
    """It costs that fact of that NPU and nothing else, and nothing is left to ask."""
    control.set_return_code(function, -8255, 2)
    fresh = await look(board)
    assert getattr(fresh.by_name["npu-2"], fact) is None
    assert fresh.chips[:2] + fresh.chips[3:] == board.chips[:2] + board.chips[3:]
    assert fresh.unanswered == ()


@pytest.mark.parametrize(("function", "fact"), FACTS)
@pytest.mark.parametrize("code", [-8002, -8005, -8006, -8012])
async def test_a_fact_that_is_not_answered_stays_as_it_is_known(
    board: Board,
    look: Look,
    control: BoardControl,
    caplog: pytest.LogCaptureFixture,
    *,
    function: str,
    fact: str,
    code: int,
) -> None:
    """The Board says so, and the log once; a fact that was never answered is None."""
    control.set_return_code(function, code, 2)
    fresh = await look(board)
    assert fresh.chips == board.chips
    (line,) = fresh.unanswered
    assert line.startswith("card 2 device 0: no ")
    assert str(code) in line
    assert await look(fresh) == fresh
    assert caplog.text.count("facts are not answered") == 1
    assert getattr((await look()).by_name["npu-2"], fact) is None


async def test_known_facts_are_not_lent_to_another_chip_in_the_same_place(
    board: Board, look: Look, control: BoardControl
) -> None:
    """The die id shows it; then an unanswered fact is unknown."""
    other = replace(board.chips[2], uuid="00000000-00000000-00000000-00000000-00000001")
    known = replace(board, chips=(*board.chips[:2], other, *board.chips[3:]))
    control.set_return_code("dcmi_get_device_hbm_info", -8006, 2)
    fresh = (await look(await look(known))).by_name["npu-2"]
    assert (fresh.uuid, fresh.memory_bytes) == (board.chips[2].uuid, None)


BOTH_MEMORIES = changed(
    load_profile("910a-8"),
    2,
    chip={"ddr": MemoryFacts(sizeMb=15171, idleMb=1000, frequencyMhz=1600)},
)


@pytest.mark.parametrize("profile", [BOTH_MEMORIES])
@pytest.mark.parametrize("code", [-8255, -8005, -8006, -8012])
async def test_ddr_is_never_taken_for_hbm(
    look: Look, dcmi: Dcmi, control: BoardControl, code: int
) -> None:
    """A 910 has both; while its HBM is not reported its memory is unknown."""
    dcmi.init()
    control.set_return_code("dcmi_get_device_hbm_info", code, 0)
    board = await look()
    assert [npu.memory_bytes for npu in board.chips] == [None, 32 * GIB]
    assert bool(board.unanswered) == (code != -8255)


@pytest.mark.parametrize("profile", [changed(load_profile("a3-16"), 2, chip={"npu_name": ""})])
@pytest.mark.parametrize("code", [-8005, -8006, -8012])
async def test_no_family_is_guessed_while_the_board_is_unanswered(
    look: Look, dcmi: Dcmi, control: BoardControl, code: int
) -> None:
    """An A3 would become a first 910; once known, it stays what it is."""
    dcmi.init()
    known = await look()
    control.set_return_code("dcmi_get_device_board_info", code, 1)
    board = await look()
    assert list(board.by_name) == ["npu-0"]
    assert len(board.unanswered) == 1
    assert (await look(known)).chips == known.chips


@pytest.mark.parametrize("profile", [changed(load_profile("a3-16"), 2)])
async def test_facts_of_the_node_and_places_in_a_super_pod_stay_too(
    look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """Version, policy, links and super pod: kept while they are not answered, and all asked for."""
    dcmi.init()
    known = await look()
    for function in (
        "dcmi_get_driver_version",
        "dcmi_get_multi_die_policy",
        "dcmi_get_topo_info_by_device_id",
        "dcmi_get_device_info",
    ):
        control.set_return_code(function, -8006)
    fresh = await look(known)
    assert fresh == replace(known, unanswered=fresh.unanswered)
    assert [line.partition(": dcmi")[0] for line in fresh.unanswered] == [
        "card 0 device 0: no vNPUs, resources, super pod",
        "card 0 device 1: no vNPUs, resources, super pod",
        "card 0 device 0: no link",
        "no driver version",
        "no multi-die policy",
    ]
    for function in ("dcmi_get_multi_die_policy", "dcmi_get_driver_version"):
        control.set_return_code(function, -8255)
    without = await look(known)
    assert (without.multi_die_policy, without.driver_version) == (None, None)


@pytest.mark.parametrize("profile", [changed(SERVER, 2, links={"between_cards": "unknown"})])
async def test_an_unknown_link_is_no_news(look: Look, dcmi: Dcmi) -> None:
    """The library answers so if it fails to ask the chip."""
    dcmi.init()
    first = await look()
    assert set(first.links.values()) == {Link.UNKNOWN}
    known = replace(first, links={(0, 1): Link.HCCS})
    assert (await look(known)).links == known.links


@pytest.mark.parametrize("profile", [changed(SERVER, 1, chip={"name": "XPU7"})])
async def test_a_chip_of_an_unknown_family_is_left_out(board: Board) -> None:
    """How to hand out a chip is not guessed; the line names it."""
    assert board.chips == ()
    assert "returned 0 (chip name 'XPU7' is of no family" in board.unanswered[0]


async def test_without_a_card_list_there_is_no_board(look: Look) -> None:
    """A library that was not initialised is an error, not an empty node."""
    with pytest.raises(DcmiError, match="dcmi_get_card_list"):
        await look()
