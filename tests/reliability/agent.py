"""`npu-dra serve` as a process of its own, on a `tests.rig.Rig`."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from tests.rig import Rig
from trio_npu_dra.crashpoints import VARIABLE
from trio_npu_dra.settings import environment_variable


@dataclass(frozen=True, slots=True)
class Agent:
    """The process and its log.

    Attributes:
        process: It may have ended.
        log: What it said, one JSON object a line.
    """

    process: trio.Process
    log: Path

    async def listening(self, socket: Path) -> None:
        """Wait until it accepts connections; what a dead one left behind does not count."""
        while True:
            with suppress(OSError):
                await (await trio.open_unix_socket(str(socket))).aclose()
                return
            assert self.process.returncode is None, self.log.read_text()
            await trio.sleep(0.01)

    async def killed(self) -> None:
        """Wait for its end, which must be by SIGKILL."""
        assert await self.process.wait() == -signal.SIGKILL, self.log.read_text()


@asynccontextmanager
async def running_agent(
    rig: Rig, *, crash_at: str = "", pod_uid: str = "", **changes: object
) -> AsyncIterator[Agent]:
    """Start it; it is killed at the end if it still runs.

    Args:
        rig: The node.
        crash_at: The crash point to arm; empty for none.
        pod_uid: That of its pod, when several instances run.
        changes: What else is different from the node's settings.
    """
    settings = rig.settings.model_dump(exclude_none=True) | changes
    if pod_uid:
        settings["pod_uid"] = pod_uid
    environment = {environment_variable(name): str(value) for name, value in settings.items()}
    if crash_at:
        environment[VARIABLE] = crash_at
    log = rig.folder / f"agent{pod_uid}.log"
    with log.open("wb") as file:
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    [sys.executable, "-m", "trio_npu_dra.cli.main", "serve"],
                    env=os.environ | environment,
                    stderr=file,
                    check=False,
                )
            )
            try:
                yield Agent(process, log)
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
