"""`npu-dra serve` as the DaemonSet starts it: in a fresh process."""

import os
import shutil
import signal
import sys
from contextlib import suppress
from functools import partial

import trio

from dev.rig.parts import Rig
from dev.rig.waiting import listens, until
from trio_npu_dra.lab.standins.kubelet import open_kubelet


async def test_serve_runs_until_sigterm(rig: Rig) -> None:
    """It takes flags and environment, prepares a claim, logs to stderr and exits with status 0."""
    program = shutil.which("npu-dra")
    assert program is not None, "install the project first: just setup"
    environment = rig.environment(http_port=0)
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
    assert not rig.registration.exists()
    assert "registered with the kubelet" in log.read_text()


async def test_serve_goes_on_and_ends_while_nobody_reads_its_log(rig: Rig) -> None:
    """As containerd stops reading while its disk stalls; the process ends as it should."""
    reader, writer = os.pipe()
    environment = os.environ | rig.environment()
    serve = [sys.executable, "-m", "trio_npu_dra.agent.cli.main", "serve"]
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            partial(trio.run_process, serve, env=environment, stderr=writer, check=False)
        )
        await until(lambda: listens(rig.registration))
        filling = os.open(f"/proc/self/fd/{writer}", os.O_WRONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while True:
                os.write(filling, bytes(100))
        async with open_kubelet(rig.registration) as kubelet:
            claim = rig.claim("a", "npu-0")
            assert (await kubelet.prepare([claim]))[claim.uid].error == ""
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    for descriptor in (reader, writer, filling):
        os.close(descriptor)
