"""Shipped profiles are right, wrong ones are refused with the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.lab.simulator import load_profile, of_server, profile_names
from trio_npu_dra.lab.simulator.profile import PROFILES


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], object]], Path]:
    """Writes the guide's profile after a change."""

    def write(change: Callable[[dict[str, Any]], object]) -> Path:
        data = json.loads((PROFILES / "910b4-8.json").read_text())
        change(data)
        path = tmp_path / "profile.json"
        path.write_text(json.dumps(data))
        return path

    return write


Changed = Callable[[Callable[[dict[str, Any]], object]], Path]


def test_shipped_profiles_name_themselves_and_their_sources() -> None:
    """Each loads under its name and says where its figures come from."""
    assert "910b4-8" in profile_names()
    for name in profile_names():
        profile = load_profile(name)
        assert profile.name == name
        assert profile.sources


def test_servers_with_one_board_share_nothing_that_is_a_chips_own() -> None:
    """Chips differ in all of it; a server of the profile's number has the same place as there."""
    board = load_profile("a3-16")
    pod = board.super_pod
    assert pod is not None
    usual = of_server(board, pod.server_index)
    assert usual.super_pod == pod
    assert [chip.sdid for chip in usual.devices] == [chip.sdid for chip in board.devices]
    servers = [usual, of_server(board, 255, super_pod=8), of_server(board, 0)]
    chips = [chip for server in servers for chip in server.devices]
    for name in ("ip", "sdid", "serial_number"):
        assert len({getattr(chip, name) for chip in chips}) == len(chips), name
    assert len({tuple(chip.die_id) for chip in chips}) == len(chips)
    places = [
        (each.super_pod.id, each.super_pod.server_index) for each in servers if each.super_pod
    ]
    assert places == [(7, 3), (8, 255), (7, 0)]


def test_the_guides_board() -> None:
    """Its npu-0 is that of the guide's sample: a 910B4 with 32 GiB on NUMA node 6."""
    profile = load_profile("910b4-8")
    first = profile.devices[0]
    assert profile.chip.hbm is not None
    assert (profile.chip.name, profile.chip.hbm.size_mb) == ("910B4", 32 * 1024)
    assert (first.physical_id, first.numa_node) == (0, 6)
    assert profile.board.board_id == 0x41


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("driverVersion"), "driverVersion: Field required"),
        (lambda data: data.update(colour="red"), "colour: Extra inputs"),
        (lambda data: data["chip"].update(aiCores="20"), "chip.aiCores: "),
        (lambda data: data["board"].update(boardId=65), "board.boardId: .*not a hex number"),
        (lambda data: data["devices"][2].update(pci="c2:00.0"), "devices.2.pci: "),
        (lambda data: data["devices"][2].pop("pci"), "pci and pciRootPort go together"),
        (lambda data: data["devices"][2].update(dieId=["0"] * 5), "devices.2.dieId.0: "),
        (lambda data: data["devices"][2].update(physicalId=1), "devices.physicalId: must ascend"),
        (lambda data: data["devices"][2].update(cardId=1), "same cardId and deviceId"),
        (
            lambda data: data["devices"][2].update(dieId=data["devices"][1]["dieId"]),
            "devices.dieId: two devices have the same",
        ),
    ],
)
def test_a_wrong_field_is_named(
    changed: Changed, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    """The error has the path of the field and the reason."""
    with pytest.raises(ConfigError, match=message):
        load_profile(changed(change))


def test_an_unknown_profile_is_answered_with_the_known(tmp_path: Path) -> None:
    """That holds for a name and for a path."""
    with pytest.raises(
        ConfigError, match=r"no simulator profile 910c: cannot read .*there are: .*910b4-8"
    ):
        load_profile("910c")
    with pytest.raises(ConfigError, match="no simulator profile"):
        load_profile(tmp_path / "none.json")
