"""The image for arm64, emulated, between stand-ins that run on this machine.

They meet on unix sockets in a folder that is at the same place on both sides.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from dev.arm64.container import IMAGE, Container, container
from dev.cluster.processes import run
from dev.rig.parts import Rig, served_rig
from dev.rig.waiting import listens, until
from trio_npu_dra.lab.standins.kubelet import open_kubelet

BOARD = "/usr/local/share/trio-npu-dra/simulator"
AARCH64 = (183).to_bytes(2, "little")
"""The machine in a file's ELF header, at byte 18."""


@pytest.fixture
def driver(folder: Path) -> Iterator[Container]:
    """A container of the image."""
    with container(IMAGE, **{str(folder).removeprefix("/"): folder}) as made:
        yield made


async def answer(driver: Container, *argv: str, rig: Rig | None = None) -> str:
    """What a program in the container prints, which knows the node."""
    environment = rig.environment() if rig else {}
    with driver.invocation(*argv, environment=environment) as words:
        return await trio.to_thread.run_sync(lambda: run(*words))


@pytest.fixture
async def rig(folder: Path, driver: Container) -> AsyncIterator[Rig]:
    """A node whose board is the image's, and its API server."""
    board = folder / "compiled"
    await answer(driver, "cp", "-r", BOARD, str(board))
    async with served_rig(folder, board, seconds=300, health_poll_interval=5.0) as rig:
        yield rig


@pytest.fixture
async def served(rig: Rig, driver: Container) -> AsyncIterator[Rig]:
    """The image's program serves."""
    log = rig.folder / "log"
    with driver.invocation("npu-dra", "serve", environment=rig.environment()) as words:
        with log.open("wb") as file:
            process = await trio.lowlevel.open_process([*map(str, words)], stderr=file)
        try:
            await until(lambda: listens(rig.registration) or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            yield rig
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


def machine(program: Path) -> bytes:
    """The machine that a program is for."""
    return program.read_bytes()[18:20]


async def test_a_claim_goes_all_the_way_and_back(served: Rig) -> None:
    """The daemon reads the board, publishes it, prepares a claim with the hook, and unprepares."""
    assert machine(served.board.library) == AARCH64
    async with open_kubelet(served.registration) as kubelet:
        devices = (await served.published()).spec.devices or ()
        claim = served.claim("a", "npu-3")
        prepared = (await kubelet.prepare([claim]))[claim.uid]

        assert [device.name for device in devices] == [f"npu-{n}" for n in range(8)]
        assert prepared.error == ""
        (cdi,) = served.cdi_files
        (hook,) = json.loads(cdi.read_bytes())["containerEdits"]["hooks"]
        assert machine(Path(hook["path"])) == AARCH64
        assert await kubelet.unprepare([claim]) == {claim.uid: ""}
        assert served.cdi_files == served.records == []


async def test_people_can_ask_it(served: Rig, driver: Container) -> None:
    """`npu-dra health` speaks to the daemon, `inspect` to the library."""
    assert "npu-7" in await answer(driver, "npu-dra", "health", rig=served)
    root = f"--host-root={served.board.root}"
    assert "910B4" in await answer(driver, "npu-dra", "inspect", root, rig=served)
