"""Chips of a simulated board in partitions: nodes, what a container sees, what a reboot leaves."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard

if TYPE_CHECKING:
    from tests.simulator.conftest import Load, MakeBoard, RawDcmi


def nodes(board: SimulatedBoard) -> set[str]:
    """The nodes of vNPUs on the host."""
    return {path.name for path in board.dev_root.iterdir() if path.name.startswith("vdavinci")}


def npu_smi(board: SimulatedBoard, *arguments: str) -> str:
    """What the board's npu-smi prints."""
    command = [str(board.npu_smi), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_a_partition_has_a_node_as_long_as_it_is_there(
    board: SimulatedBoard, control: BoardControl
) -> None:
    """Partitions of one chip come and go one by one; the lowest free id is taken."""
    assert [control.create_vnpu(2, "vir05_1c_8g") for _ in range(2)] == [132, 133]
    assert nodes(board) == {"vdavinci132", "vdavinci133"}
    control.destroy_vnpu(2, 132)
    assert nodes(board) == {"vdavinci133"}
    assert control.create_vnpu(2, "vir10_3c_16g") == 132
    assert [vnpu.template for vnpu in control.vnpus(2)] == ["vir05_1c_8g", "vir10_3c_16g"]


def test_all_partitions_of_a_chip_go_at_once(control: BoardControl, dcmi: RawDcmi) -> None:
    """Unless a container has one of them open."""
    for _ in range(3):
        control.create_vnpu(2, "vir05_1c_8g")
    control.use_vnpu(2, 133)
    assert dcmi.code("dcmi_set_destroy_vdevice", 2, 0, 0xFFFF) == -8001
    control.use_vnpu(2, 133, in_use=False)
    assert dcmi.code("dcmi_set_destroy_vdevice", 2, 0, 0xFFFF) == 0
    assert control.vnpus(2) == ()


@pytest.mark.parametrize("recovers", [True, False])
def test_partitions_outlive_a_reboot_if_the_driver_remakes_them(
    board: SimulatedBoard, control: BoardControl, recovers: bool
) -> None:
    """Nobody uses them then."""
    made = control.create_vnpu(2, "vir05_1c_8g")
    control.use_vnpu(2, made)
    control.set_vnpu_recovery(enabled=recovers)
    control.reboot()
    assert [(vnpu.id, vnpu.in_use) for vnpu in control.vnpus(2)] == [(132, False)] * recovers
    assert nodes(board) == {"vdavinci132"} if recovers else not nodes(board)


def test_an_administrator_sees_what_is_left(board: SimulatedBoard, control: BoardControl) -> None:
    """And gets the library's code if something is refused."""
    control.create_vnpu(0, "vir10_3c_16g")
    told = npu_smi(board, "info", "-t", "info-vnpu", "-i", "0", "-c", "0")
    assert "AICORE 10/20, Memory(MB) 16384/32768, AICPU 4/7" in told
    assert "Vnpu ID 100: vir10_3c_16g, in use 0" in told
    with pytest.raises(ConfigError, match="ret is -8001"):
        control.create_vnpu(0, "vir02")
    with pytest.raises(ConfigError, match="ret is -8008"):
        control.destroy_vnpu(0, 101)
    with pytest.raises(ConfigError, match="has no vNPU 101"):
        control.use_vnpu(0, 101)
    assert npu_smi(board, "set", "-t", "create-vnpus") == ""


def test_a_container_sees_its_partitions_alone(
    make_board: MakeBoard, load: Load, tmp_path: Path
) -> None:
    """Its device nodes decide: `davinciN` of chips, of vNPUs those of their own numbers."""
    board = make_board("300i-pro-2")
    with board.control() as control:
        for template in ("vir02", "vir04_3c"):
            control.create_vnpu(1, template)
    host = load(board.library)
    assert host.cards() == [1, 5]
    inside = tmp_path / "inside"
    shutil.copytree(board.root, inside, symlinks=True, ignore=shutil.ignore_patterns("dev"))
    board.dev_root.rename(tmp_path / "host-dev")
    board.dev_root.mkdir()
    (board.dev_root / "davinci117").symlink_to(os.devnull)
    container = load(inside / board.library.relative_to(board.root))
    assert container.cards() == [117]
    table = npu_smi(board, "info")
    assert "| 117   310P3vir04_3c " in table
    assert "0    / 10763" in table
    assert table.count("310P3") == 1
    assert container.number("dcmi_get_device_num_in_card", 117) == 1
    create = container.code("dcmi_set_destroy_vdevice", 117, 0, 117)
    assert create == -8002
