"""The folder of a simulated board: a host with a driver, and a container's view of it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.nobody import NOBODY, as_nobody
from trio_npu_dra.kit.base.errors import CannotCompile, ConfigError, StorageError
from trio_npu_dra.lab.simulator import (
    Severity,
    SimulatedBoard,
    compile_simulator,
    create_board,
    load_profile,
)
from trio_npu_dra.lab.simulator.build import SOURCES
from trio_npu_dra.lab.simulator.layout import RECORDS

if TYPE_CHECKING:
    from tests.simulator.conftest import Load, RawDcmi


def run_npu_smi(board: SimulatedBoard, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the board's npu-smi with an empty environment."""
    command = [str(board.npu_smi), *arguments]
    return subprocess.run(command, env={}, capture_output=True, text=True, check=False)


@pytest.fixture
def folder_of_nobody(simulator: Path) -> Iterator[Path]:
    """A folder that the user of `as_nobody` owns, with the binaries in `prebuilt`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "prebuilt").mkdir()
        for binary in simulator.iterdir():
            shutil.copyfile(binary, folder / "prebuilt" / binary.name)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder


def test_the_compiler_has_nothing_to_say() -> None:
    """It gives no warning, and the vendor's struct sizes hold as static assertions."""
    sources = [str(path) for path in SOURCES.glob("*.c")]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run(["cc", *flags, "-fsyntax-only", *sources], check=True)


def test_python_and_c_agree_on_the_state_file(tmp_path: Path) -> None:
    """The compiler checks every member's place against layout.py."""
    lines = ["#include <stddef.h>", f'#include "{SOURCES / "state.h"}"']
    for record in RECORDS:
        c_name = f"struct {record.name}"
        lines.append(f'_Static_assert(sizeof({c_name}) == {record.size}, "{record.name}");')
        for member in record:
            place = f"offsetof({c_name}, {member.name}) == {member.offset}"
            size = f"sizeof((({c_name} *)0)->{member.name}) == {member.size}"
            lines.append(f'_Static_assert({place} && {size}, "{record.name}.{member.name}");')
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    subprocess.run(["cc", "-std=c11", "-fsyntax-only", str(source)], check=True)


def test_flags_point_at_the_board(board: SimulatedBoard) -> None:
    """They are the driver's three roots."""
    root = board.root
    assert board.flags() == [
        f"--host-root={root}",
        f"--dev-root={root}/dev",
        f"--sysfs-root={root}/sys",
    ]


def test_driver_files_are_where_the_installer_puts_them(board: SimulatedBoard) -> None:
    """These are library, its second place, tool and version file; both places find the state."""
    usr = board.root / "usr/local"
    assert (usr / "dcmi/libdcmi.so").resolve() == board.library.resolve()
    assert board.library == usr / "Ascend/driver/lib64/libdcmi.so"
    assert board.state_file.parent == board.library.parent
    assert "Version=24.1.rc2\n" in (usr / "Ascend/driver/version.info").read_text()
    assert (usr / "Ascend/driver/include").is_dir()
    assert os.access(usr / "bin/npu-smi", os.X_OK)


def test_device_nodes_are_character_devices(board: SimulatedBoard) -> None:
    """There is one for each NPU, and the three that all share."""
    nodes = {path.name for path in board.dev_root.iterdir() if stat.S_ISCHR(path.stat().st_mode)}
    shared = {"davinci_manager", "devmm_svm", "hisi_hdc"}
    assert nodes == {f"davinci{number}" for number in range(8)} | shared


def test_without_rights_nodes_are_links(folder_of_nobody: Path) -> None:
    """A user without rights gets links to /dev/null, and a board that works."""
    profile, prebuilt = load_profile("910b4-8"), folder_of_nobody / "prebuilt"
    with as_nobody():
        board = create_board(profile, folder_of_nobody / "board", prebuilt=prebuilt)
        assert (board.dev_root / "davinci3").readlink() == Path("/dev/null")
        assert run_npu_smi(board, "info").returncode == 0


def test_who_may_not_write_the_state_may_not_set_policies(
    board: SimulatedBoard, load: Load
) -> None:
    """Without a writable view of the state, a change is not permitted; reading goes on."""
    dcmi = load(board.library)
    board.state_file.chmod(0o444)
    with as_nobody():
        code = dcmi.code("dcmi_set_device_share_enable", 0, 0, 1)
    assert code == -8002
    assert dcmi.number("dcmi_get_device_share_enable", 0, 0) == 0


def test_a_container_sees_only_its_npus_renumbered(board: SimulatedBoard, load: Load) -> None:
    """Chips without a device node do not exist; logic ids start at 0 in ascending order."""
    for number in (0, 1, 3, 4, 6, 7):
        (board.dev_root / f"davinci{number}").unlink()
    dcmi = load(board.library)
    assert dcmi.cards() == [2, 5]
    physical = [dcmi.number("dcmi_get_device_phyid_from_logicid", logic) for logic in (0, 1)]
    assert physical == [2, 5]
    table = run_npu_smi(board, "info").stdout
    assert [line[:13] for line in table.splitlines() if "910B4" in line] == [
        "| 2     910B4",
        "| 5     910B4",
    ]


def test_npu_smi_prints_the_familiar_table(board: SimulatedBoard) -> None:
    """It has a header, two lines for each chip, processes; every line is as wide as the frame."""
    with board.control() as control:
        control.set_processes(7, [(1, 2048 << 20)])
        control.set_utilization(7, 2, 55)
    run = run_npu_smi(board, "info")
    assert run.returncode == 0
    lines = run.stdout.splitlines()
    assert {len(line) for line in lines} == {98}
    assert lines[1].split() == ["|", "npu-smi", "24.1.rc2", "Version:", "24.1.rc2", "|"]
    assert "| NPU   Name                | Health        | Power(W)    Temp(C)" in run.stdout
    assert "| 0     910B4               | OK            | 86.5        38" in run.stdout
    assert "| 0                         | 0000:C1:00.0  | 0           0    / 0" in run.stdout
    assert "| 0                         | 0000:42:00.0  | 55          0    / 0" in run.stdout
    assert run.stdout.count("2832 / 32768") == 8
    assert "No running processes found in NPU 0" in run.stdout
    assert "No running processes found in NPU 7" not in run.stdout
    assert lines[-2].split()[1:6] == ["7", "0", "|", "1", "|"]
    assert "| 2048 " in lines[-2]


def test_npu_smi_shows_what_is_wrong(board: SimulatedBoard) -> None:
    """It shows health as text; a silent chip has no figures."""
    with board.control() as control:
        control.add_fault(1, 0x80E01801, Severity.CRITICAL)
        control.set_booting(2)
    chips = [line for line in run_npu_smi(board, "info").stdout.splitlines() if "| NA " in line]
    assert len(chips) == 2
    assert chips[0].startswith("| 2     NA                  | UNKNOWN ")
    assert "| Critical " in run_npu_smi(board, "info").stdout


def test_npu_smi_without_a_device_fails_in_one_line(board: SimulatedBoard) -> None:
    """Without a device node it prints the vendor's message and fails."""
    for node in board.dev_root.glob("davinci[0-9]"):
        node.unlink()
    run = run_npu_smi(board, "info")
    assert run.returncode != 0
    assert run.stdout == "dcmi module initialize failed. ret is -8005\n"


def test_a_board_can_be_laid_out_again(
    board: SimulatedBoard, dcmi: RawDcmi, simulator: Path
) -> None:
    """A new board replaces the old one; processes that have the old one loaded keep it."""
    with board.control() as control:
        control.set_temperature(0, 90)
    again = create_board(board.profile, board.root, prebuilt=simulator)
    with again.control() as control:
        assert control.read(0, "temperature") == 38
    assert dcmi.number("dcmi_get_device_temperature", 0, 0) == 90


def test_no_compiler_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty PATH the error names the package."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CannotCompile, match="finds no cc in PATH: install gcc"):
        compile_simulator(tmp_path)


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output is in the error."""
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho no headers here >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(CannotCompile, match="no headers here"):
        create_board(load_profile("910b4-8"), tmp_path / "board")


def test_incomplete_binaries_are_refused(tmp_path: Path) -> None:
    """The message names the missing file."""
    with pytest.raises(ConfigError, match=r"has no libdcmi\.so"):
        create_board(load_profile("910b4-8"), tmp_path / "board", prebuilt=tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, simulator: Path) -> None:
    """A file in the way is the operator's error, not a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot lay out a simulated board in"):
        create_board(load_profile("910b4-8"), tmp_path / "file/board", prebuilt=simulator)


def test_a_path_too_long_for_the_state_is_refused(tmp_path: Path, simulator: Path) -> None:
    """The message names the field of the state file."""
    deep = tmp_path.joinpath(*["x" * 200] * 5)
    with pytest.raises(ConfigError, match=r"dev_root: .* is longer than 1023 bytes"):
        create_board(load_profile("910b4-8"), deep, prebuilt=simulator)
