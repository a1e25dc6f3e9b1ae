"""The pictures of simulated nodes: `python -m dev.site.topology_pictures` makes them again."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from dev.rig.compiled import compiled_simulator
from dev.site.markdown import with_output
from dev.site.unhealthy_boards import npu
from trio_npu_dra.agent.cli.main import main
from trio_npu_dra.agent.holds.entry import Allocated, Entry, EntryState, HeldDevice
from trio_npu_dra.agent.holds.hold import Holder, HolderKind
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.base.storage import PLUGIN_FOLDER_MODE
from trio_npu_dra.lab.simulator import Severity, create_board, load_profile

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = DOCS / "topology.md"
NODE = "node-1"
DRIVER = "npu.huawei.com"
FAULT = 0x80E18005
"""The NPU must be restarted, says the vendor's table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What happens on a node.

    Attributes:
        profile: Its board.
        unhealthy: The physical id of an NPU with a fault.
        held: The physical ids of the NPUs that each claim holds.
    """

    profile: str
    unhealthy: int
    held: Mapping[str, tuple[int, ...]]

    @property
    def file(self) -> Path:
        """Where the drawing is committed."""
        return DOCS / f"topology-{self.profile.partition('-')[0]}.svg"


SCENES = (
    Scene(profile="910b4-8", unhealthy=3, held={"train": (4, 6), "serve": (1,)}),
    Scene(profile="a3-16", unhealthy=9, held={"train": (0, 1)}),
    Scene(profile="950-card-4", unhealthy=1, held={"train": (2, 3)}),
)


def make(scene: Scene, folder: Path) -> tuple[str, str]:
    """The matrix and the drawing, as `npu-dra inspect` makes them of the board on disk."""
    board = create_board(load_profile(scene.profile), folder, prebuilt=compiled_simulator())
    plugins, drawing = folder / "plugins", folder / "drawing.svg"
    (plugins / DRIVER).mkdir(parents=True)
    (plugins / DRIVER).chmod(PLUGIN_FOLDER_MODE)
    trio.run(_hold, plugins / DRIVER, scene)
    with board.control() as control:
        control.add_fault(scene.unhealthy, FAULT, Severity.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = main(
            [
                *("inspect", "--topology", f"--svg={drawing}", f"--node-name={NODE}"),
                *(f"--host-root={board.root}", f"--dev-root={board.dev_root}"),
                f"--sysfs-root={board.sysfs_root}",
                f"--kubelet-plugins-directory-path={plugins}",
            ]
        )
    assert code == 0
    return printed.getvalue(), drawing.read_text(encoding="utf-8")


async def _hold(state_folder: Path, scene: Scene) -> None:
    """Let claims have NPUs, as the daemon would note it."""
    ledger = Ledger(state_folder)
    async with ledger.exclusive():
        for name, numbers in scene.held.items():
            chips = [npu(number) for number in numbers]
            ledger.put(
                Entry(
                    holder=Holder(
                        kind=HolderKind.CLAIM, namespace="default", name=name, uid=f"uid-{name}"
                    ),
                    state=EntryState.READY,
                    allocation=tuple(
                        Allocated(requests=("npu",), pool=NODE, device=chip.name) for chip in chips
                    ),
                    devices=tuple(
                        HeldDevice(
                            device=chip.name,
                            family=chip.family,
                            nodes={chip.device_node: chip.device_node},
                            chips=(chip,),
                        )
                        for chip in chips
                    ),
                    edits={"cdiVersion": "0.5.0"},
                )
            )


def write_all() -> None:
    """Write the drawings, and the matrices in the page."""
    for scene in SCENES:
        with tempfile.TemporaryDirectory() as folder:
            matrix, drawing = make(scene, Path(folder))
        scene.file.write_text(drawing, encoding="utf-8")
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_output(page, f"matrix of {scene.profile}", matrix), encoding="utf-8")


if __name__ == "__main__":
    write_all()
