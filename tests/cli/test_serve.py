"""`npu-dra serve` as the DaemonSet starts it: in a fresh process."""

import os
import shutil
import signal
from functools import partial

import trio

from tests.rig import Rig
from tests.waiting import listens, until
from trio_npu_dra.standins.kubelet import open_kubelet


async def test_serve_runs_until_sigterm(rig: Rig) -> None:
    """It takes flags and environment, prepares a claim, logs to stderr and exits with status 0."""
    program = shutil.which("npu-dra")
    assert program is not None, "install the project first: just setup"
    environment = rig.environment()
    node_name = environment.pop("NPU_DRA_NODE_NAME")
    log = rig.folder / "log"
    with log.open("wb") as file:
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    [program, "serve", f"--node-name={node_name}"],
                    env=os.environ | environment,
                    stderr=file,
                    check=False,
                )
            )
            await until(lambda: listens(rig.registration))
            async with open_kubelet(rig.registration) as kubelet:
                claim = rig.claim("a", "npu-0")
                assert (await kubelet.prepare([claim]))[claim.uid].error == ""
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    assert "registered with the kubelet" in log.read_text()
    assert not rig.registration.exists()
