"""The addresses of RoCE ports, through the real library's calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from typing import Any

import pytest

from dev.rig.looking import SERVER, Look, Relay, changed
from trio_npu_dra.ascend.chip_network import DEADLINE_SECONDS, HURRIED_SECONDS
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.model import Board, ChipNetwork
from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard, load_profile

MAC = "02:4e:c0:a8:64:65"
NPU = changed(SERVER, 1)
WRITTEN = """\
address_0=10.0.0.7
netmask_0=255.255.0.0
gateway_0=10.0.255.254
IPv6address_0=fd00::7
IPv6netmask_0=64
netdetect_0=10.0.0.1
IPv6address_1=fd00::8
IPv6netmask_1=64
address_2=10.0.0.9
"""


def network(address: str, gateway: str | None = None, mac: str | None = MAC) -> ChipNetwork:
    """What is known of a port."""
    return ChipNetwork(
        addresses=(ip_interface(address),),
        gateway=ip_address(gateway) if gateway else None,
        mac=mac,
    )


@pytest.mark.parametrize("profile", [NPU])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((ip_interface("10.20.0.13/22"),), network("10.20.0.13/22")),
        (
            (ip_interface("10.20.0.13/22"), ip_address("10.20.0.1")),
            network("10.20.0.13/22", "10.20.0.1"),
        ),
        (
            (ip_interface("fd00::13/64"), ip_address("fe80::1")),
            network("fd00::13/64", "fe80::1"),
        ),
        ((None,), None),
        ((ip_interface("0.0.0.0/0"),), None),
        ((ip_interface("fe80::13/64"),), None),
    ],
)
async def test_address_of_a_roce_port(
    look: Look, dcmi: Dcmi, control: BoardControl, given: tuple[Any, ...], expected: ChipNetwork
) -> None:
    """IPv4, else IPv6, with its network; 0.0.0.0 and fe80:: are none. Each look reads it again."""
    dcmi.init()
    before = await look()
    control.set_address(0, *given)
    board = await look(before)
    assert before.chips[0].network == network("192.168.100.101/24")
    assert (board.chips[0].network, board.unanswered) == (expected, ())


@pytest.mark.parametrize(
    "profile", [changed(load_profile(name), 2) for name in ("300i-duo-2", "300i-a2-2", "950-pod-8")]
)
async def test_chips_without_such_a_port_have_no_address(board: Board) -> None:
    """310P, 300I A2 and 950; that they have none is no gap in what is known."""
    assert ({chip.network for chip in board.chips}, board.unanswered) == ({None}, ())


@pytest.mark.parametrize("profile", [NPU])
async def test_known_addresses_stay_while_the_chip_gives_none(
    look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """That is no gap for which cards are listed again; what else the port has is no part of it."""
    dcmi.init()
    before = await look()
    control.set_return_code("dcmi_get_device_ip", -8005)
    after = await look(before)
    assert after == before

    control.release("dcmi_get_device_ip")
    control.set_return_code("dcmi_get_device_mac", -8002)
    control.set_return_code("dcmi_get_device_gateway", -8005)
    last = await look(after)
    assert (last.chips[0].network, last.unanswered) == (
        network("192.168.100.101/24", None, None),
        (),
    )


@pytest.mark.parametrize("profile", [changed(SERVER, 2)])
async def test_a_port_that_hangs_costs_its_address_alone(
    look: Look, dcmi: Dcmi, hang: Callable[[str, int], None], relay: Relay
) -> None:
    """At a start, too; and cards are listed beside that call. The next port gets less time."""
    dcmi.init()
    whole = (await look()).chips[0]
    usual = relay.deadlines["_network"]
    hang("dcmi_get_device_ip", 0)
    for _ in range(2):
        board = await look()
        assert (board.chips[0], board.gaps) == (replace(whole, network=None), ())
        assert (relay.deadlines["_network"], usual) == (HURRIED_SECONDS, DEADLINE_SECONDS)


@pytest.mark.parametrize("profile", [changed(SERVER, 3)])
async def test_the_file_tells_addresses_where_the_library_has_no_call(
    look: Look,
    dcmi: Dcmi,
    control: BoardControl,
    simulated: SimulatedBoard,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The library's answer counts where there is one, and a line without a mask nowhere.

    The log says once whose the addresses are.
    """
    (simulated.root / "etc").mkdir()
    (simulated.root / "etc/hccn.conf").write_text(WRITTEN)
    dcmi.init()
    told = await look()
    for function in ("ip", "gateway", "mac"):
        control.set_return_code(f"dcmi_get_device_{function}", -8255)
    for _ in range(2):
        board = await look()
    said = [one for one in caplog.records if one.message.startswith("addresses of NPUs are taken")]
    assert len(said) == 1
    assert told.chips[0].network == network("192.168.100.101/24")
    assert [chip.network for chip in board.chips] == [
        network("10.0.0.7/16", "10.0.255.254", None),
        network("fd00::8/64", None, None),
        None,
    ]
