"""The outputs in docs/doctor.md: `python -m dev.site.doctor_outputs` makes them again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from dev.rig.compiled import compiled_simulator
from dev.rig.doctor_nodes import ASCEND_BY_DEFAULT, SESSION, Node, node
from dev.site.markdown import with_output

PAGE = Path(__file__).parent.parent.parent / "docs/doctor.md"


def _healthy(node: Node) -> None:
    node.use(1)


def _before_a_move(node: Node) -> None:
    node.write("etc/containerd/config.toml", ASCEND_BY_DEFAULT)
    node.listen(node.places.device_plugins / "Ascend910.sock")
    node.run_huaweis_pods("huawei.com/Ascend910")
    node.run_program(4711, "/usr/bin/python3", cgroup=SESSION)
    node.use(3, 4711)


SCENES: Mapping[str, Callable[[Node], None]] = {
    "healthy": _healthy,
    "before a move": _before_a_move,
}


def make(scene: str, folder: Path) -> str:
    """What the command prints on such a node."""
    with node(folder, compiled_simulator()) as made:
        SCENES[scene](made)
        return made.doctor()[1]


def write_all() -> None:
    """Write all outputs into the page."""
    for scene in SCENES:
        with tempfile.TemporaryDirectory(prefix="npu-") as folder:
            output = make(scene, Path(folder))
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_output(page, f"doctor: {scene}", output), encoding="utf-8")


if __name__ == "__main__":
    write_all()
