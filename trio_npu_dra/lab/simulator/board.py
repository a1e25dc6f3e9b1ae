"""A simulated board on disk: a folder that looks like the root of a host with an Ascend driver."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.storage import translated, write_atomic
from trio_npu_dra.lab.simulator.build import (
    BINARIES,
    LIBRARY,
    NPU_SMI,
    compile_simulator,
)
from trio_npu_dra.lab.simulator.control import BoardControl
from trio_npu_dra.lab.simulator.host_tree import (
    DRIVER,
    TOOLS,
    install_driver,
    make_device_nodes,
    make_numa_nodes,
    make_pci_devices,
    make_unified_bus,
)
from trio_npu_dra.lab.simulator.initial_state import initial_state
from trio_npu_dra.lab.simulator.profile import Profile

STATE_FILE = "board.state"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBoard:
    """The files of a simulated board.

    Attributes:
        root: The folder that stands for a host's `/`.
        profile: The profile that the board was made from.
    """

    root: Path
    profile: Profile

    @property
    def library(self) -> Path:
        """The simulated `libdcmi.so`."""
        return self.root / DRIVER / "lib64" / LIBRARY

    @property
    def npu_smi(self) -> Path:
        """The simulated `npu-smi`."""
        return self.root / TOOLS / NPU_SMI

    @property
    def state_file(self) -> Path:
        """The board's state, beside the library."""
        return self.library.with_name(STATE_FILE)

    @property
    def dev_root(self) -> Path:
        """The folder with the device nodes."""
        return self.root / "dev"

    @property
    def sysfs_root(self) -> Path:
        """The folder that stands for `/sys`."""
        return self.root / "sys"

    def flags(self) -> list[str]:
        """Flags with which the driver sees this board instead of the host."""
        return [
            f"--host-root={self.root}",
            f"--dev-root={self.dev_root}",
            f"--sysfs-root={self.sysfs_root}",
        ]

    def control(self) -> BoardControl:
        """A handle that changes the board; the caller closes it.

        Raises:
            ConfigError: The state file is gone, or of another version.
        """
        return BoardControl(self.state_file)


def create_board(
    profile: Profile, state_dir: Path, *, prebuilt: Path | None = None
) -> SimulatedBoard:
    """Lay out a simulated board in place of an older one.

    Blocks for about a second when it compiles.

    Args:
        profile: The board, from `load_profile`.
        state_dir: The folder to fill, made if it is missing; afterwards a `--host-root`.
        prebuilt: A folder that `compile_simulator` filled; `None` compiles.

    Raises:
        CannotCompile: There is no C compiler, or it fails.
        ConfigError: *prebuilt* lacks a file.
        StorageError: The folder cannot be written.
    """
    board = SimulatedBoard(root=state_dir.absolute(), profile=profile)
    if prebuilt is None:
        with tempfile.TemporaryDirectory(prefix="npu-simulator-") as folder:
            _lay_out(board, compile_simulator(Path(folder)))
    else:
        _check_prebuilt(prebuilt)
        _lay_out(board, prebuilt)
    return board


def _check_prebuilt(folder: Path) -> None:
    for name in BINARIES:
        if not (folder / name).is_file():
            raise ConfigError(f"the folder of prebuilt simulator files {folder} has no {name}")


def _lay_out(board: SimulatedBoard, binaries: Path) -> None:
    with translated(f"lay out a simulated board in {board.root}"):
        install_driver(board.root, binaries, board.profile, STATE_FILE)
        write_atomic(board.state_file, initial_state(board.profile, board.dev_root), mode=0o644)
        make_device_nodes(board.dev_root, board.profile, board.state_file)
        make_pci_devices(board.sysfs_root, board.profile)
        make_unified_bus(board.sysfs_root, board.profile)
        make_numa_nodes(board.sysfs_root, board.profile)
