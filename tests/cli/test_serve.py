"""`npu-dra serve` as the DaemonSet starts it: in a fresh process."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import trio

from dev.rig.parts import Rig
from dev.rig.waiting import listens, until
from trio_npu_dra.lab.standins.kubelet import open_kubelet

PACKAGES = {
    *("trio", "attr", "attrs", "idna", "outcome", "sniffio", "sortedcontainers"),
    *("grpclib", "h2", "hpack", "hyperframe", "multidict", "betterproto2"),
    "h11",
    *("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"),
}
"""Packages of others that the kubelet's first call or the first ResourceSlice needs."""

OF_KUBECONFIG = {
    *("httpx", "httpcore", "anyio", "certifi", "yaml"),
    # What httpx uses if it is there; some of it comes with the extra `cli`.
    *("brotli", "brotlicffi", "click", "pygments", "rich", "socksio", "zstandard"),
}
"""Those that a start needs besides where it reads a kubeconfig; in a pod it reads none."""

ROOMS = {
    *("ascend", "revision"),
    *("kit.api", "kit.base", "kit.grpc", "kit.http", "kit.pool"),
    *("kit.kubelet.device_health", "kit.kubelet.dra_plugin", "kit.kubelet.driver"),
    *("kit.kubelet.endpoints", "kit.kubelet.plugin", "kit.kubelet.probes"),
    "kit.kubelet.registration",
    *("agent.claims", "agent.cli", "agent.config", "agent.daemon", "agent.devices"),
    *("agent.handout", "agent.holds"),
    *("agent.control.server", "agent.report.device_health"),
    *("agent.observe.inbox", "agent.observe.latency", "agent.observe.self_check"),
    "agent.flags",
    "agent.settings",
}
"""The same of our own: rooms, or modules of those that are not needed as a whole."""

LATER = {"trio_npu_dra.agent.observe.pages", "trio_npu_dra.agent.control.answers"} | {
    "trio_npu_dra.agent.report.events"
}
"""What each of `deferred`'s tasks imports at last."""


async def test_serve_runs_until_sigterm(rig: Rig) -> None:
    """It takes flags and environment, prepares a claim, logs to stderr and exits with status 0.

    Before it answers the kubelet, it imports nothing that it needs later, and it never imports
    device_plugin, because its node has only claims, nor asyncio, because trio is the only loop.
    """
    program = shutil.which("npu-dra")
    assert program is not None, "install the project first: just setup"
    environment = rig.environment(http_port=0) | {"PYTHONPROFILEIMPORTTIME": "1"}
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
                await until(lambda: set(_imported(log.read_text())) >= LATER)
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    assert not rig.registration.exists()
    assert not [name for name in _imported(log.read_text()) if "agent.device_plugin" in name]
    assert not [name for name in _imported(log.read_text()) if name.partition(".")[0] == "asyncio"]
    before, found, _ = log.read_text().partition("registered with the kubelet")
    assert found
    ours = before.partition(" trio_npu_dra\n")[2]  # before it, Python imports what it starts with
    early = {name for name in _imported(ours) if not _is_allowed(name)}
    assert not early, (
        f"imported before the kubelet is answered: {sorted(early)}. Import it in "
        "trio_npu_dra/agent/daemon/deferred.py; if the first slice needs it, add it here"
    )


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


def test_a_pod_starts_without_what_a_kubeconfig_needs() -> None:
    """The first watch brings httpx; its import is a tenth of a start."""
    code = "import sys, trio_npu_dra.agent.cli.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & PACKAGES >= {"trio", "h11"}
    assert not loaded & OF_KUBECONFIG


def _imported(log: str) -> Iterator[str]:
    """The modules that Python says it has imported, in order."""
    for found in re.finditer(r"^import time: +\d+ \| +\d+ \| +(\S+)$", log, re.MULTILINE):
        yield found[1]


def _is_allowed(name: str) -> bool:
    package, _, rest = name.partition(".")
    if package != "trio_npu_dra":
        # Names with an underscore are of Python itself, or of how this project is installed; `org`
        # is Jython's, which the copy.py of Python 3.11 looks for.
        allowed = PACKAGES | OF_KUBECONFIG | sys.stdlib_module_names | {"org"}
        return package in allowed or package[0] == "_"
    return not rest or any(
        f"{rest}.".startswith(f"{one}.") or one.startswith(f"{rest}.") for one in ROOMS
    )
