"""What `npu-dra doctor` says of the addresses of RoCE ports."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest

from dev.rig.doctor_nodes import Node, node
from trio_npu_dra.lab.simulator import BoardControl, load_profile

CHECK = "NPU addresses"
OTHER = ip_interface("10.1.0.4/24")


def _one_for_two(control: BoardControl) -> None:
    control.set_address(3, ip_interface("192.168.100.102/24"))


def _none(control: BoardControl) -> None:
    control.set_address(3, None)


def _apart(control: BoardControl) -> None:
    control.set_address(3, OTHER)


def _behind_a_gateway(control: BoardControl) -> None:
    control.set_address(3, OTHER, ip_address("10.1.0.1"))


def _in_pairs(control: BoardControl) -> None:
    for number in range(8):
        control.set_address(number, ip_interface(f"10.1.{number % 4}.{number}/24"))


def _without_link(control: BoardControl) -> None:
    control.set_network_health(3, 3)


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        (_one_for_two, "warning", "npu-1 and npu-3 have one address, 192.168.100.102"),
        (_none, "warning", "without an address, which other NPUs have: npu-3"),
        (_apart, "warning", "alone in its network, and without a gateway: npu-3 (10.1.0.4/24 "),
        (_behind_a_gateway, "ok", "8 NPUs have one, in 192.168.100.0/24 and 10.1.0.0/24"),
        (_in_pairs, "ok", "8 NPUs have one, in 10.1.0.0/24, 10.1.1.0/24, 10.1.2.0/24 and 10.1"),
        (_without_link, "warning", "npu-3 has the address 192.168.100.104/24 "),
    ],
)
def test_addresses_of_one_node(
    healthy: Node, change: Callable[[BoardControl], None], level: str, words: str
) -> None:
    """Each must have one of its own, with a way to peers."""
    assert healthy.board is not None
    with healthy.board.control() as control:
        change(control)
    ((found, text),) = healthy.findings()[CHECK]
    assert (found, text[: len(words)]) == (level, words)


@pytest.mark.parametrize(
    ("address", "level"),
    [
        ("address_3=192.168.100.104", "ok"),
        ("address_3=192.168.100.99", "warning"),
        ("address_9=192.168.100.99", "warning"),
    ],
)
def test_file_gives_the_addresses_that_npus_have(healthy: Node, address: str, level: str) -> None:
    """Else it is of other NPUs, or they got others meanwhile."""
    number = address.partition("=")[0][-1]
    healthy.write("etc/hccn.conf", f"{address}\nnetmask_{number}=255.255.255.0\n")
    assert [found for found, _ in healthy.findings()[CHECK]] == [level]


def test_nothing_is_said_of_npus_without_ports(folder: Path, simulator: Path) -> None:
    """Unless a file gives them addresses."""
    with node(folder, simulator, profile=load_profile("300i-duo-2")) as duo:
        assert CHECK not in duo.findings()
        duo.write("etc/hccn.conf", "address_0=192.168.100.99\nnetmask_0=255.255.255.0\n")
        assert [found for found, _ in duo.findings()[CHECK]] == ["warning"]
