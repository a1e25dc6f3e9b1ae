"""A chip belongs to the first container that uses it, unless it is shared."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard

if TYPE_CHECKING:
    from tests.simulator.conftest import RawDcmi

INSIDE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
PRIVILEGED = ("unshare", "--mount", "sh", "-c")
SCRIPT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
"""A container's view: a namespace of its own, in which the driver's folder is read-only."""


def command(board: SimulatedBoard, *arguments: str) -> list[str]:
    """The npu-smi of a container with all chips."""
    return [*INSIDE, SCRIPT, str(board.root), str(board.root / "usr/local/bin/npu-smi"), *arguments]


def watching_as_administrator(board: SimulatedBoard) -> list[str]:
    """The same of a privileged container, such as that of an agent with few mounts."""
    tool = str(board.root / "usr/local/bin/npu-smi")
    return [*PRIVILEGED, SCRIPT, str(board.root), tool, "info", "watch"]


def ask(board: SimulatedBoard) -> str:
    """What the npu-smi of another container prints."""
    run = subprocess.run(command(board, "info"), capture_output=True, text=True, check=False)
    return run.stdout + run.stderr


@contextmanager
def in_use(watching: list[str]) -> Iterator[None]:
    """A container uses all chips."""
    with subprocess.Popen(watching, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        watch.stdout.readline()
        try:
            yield
        finally:
            watch.kill()


def test_a_second_container_is_refused_until_the_first_ends(board: SimulatedBoard) -> None:
    """Each sees the chips by itself."""
    with in_use(command(board, "info", "watch")):
        assert "ret is -8020" in ask(board)
    assert "910B4" in ask(board)


def test_the_host_sees_that_a_container_has_a_chip(board: SimulatedBoard, dcmi: RawDcmi) -> None:
    """As a process; the container does not see itself."""
    with in_use(command(board, "info", "watch")):
        assert dcmi.processes(3) == [0]
    assert dcmi.processes(3) == []


def test_a_shared_chip_is_for_all(
    board: SimulatedBoard, dcmi: RawDcmi, control: BoardControl
) -> None:
    """Whose flag does not change meanwhile."""
    for chip in range(8):
        control.set_share(chip, enabled=True)
    with in_use(command(board, "info", "watch")):
        assert "910B4" in ask(board)
        assert dcmi.code("dcmi_set_device_share_enable", 3, 0, 0) == -8013
    assert dcmi.code("dcmi_set_device_share_enable", 3, 0, 0) == 0


def test_who_is_no_container_takes_nothing(board: SimulatedBoard, dcmi: RawDcmi) -> None:
    """Such as the driver, which looks at all chips for ever."""
    assert len(dcmi.cards()) == 8
    assert "910B4" in ask(board)
    assert dcmi.code("dcmi_set_device_share_enable", 3, 0, 1) == 0


def test_a_privileged_container_takes_nothing(board: SimulatedBoard) -> None:
    """The kernel module counts it as the administrator's."""
    with in_use(watching_as_administrator(board)):
        assert "910B4" in ask(board)
