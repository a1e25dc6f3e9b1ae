"""`just kind up`, `load` and `down`: a cluster with the driver on simulated boards, to work with.

It goes on when the command has ended; there is one at a time. The last line that `up` prints is how
kubectl reaches it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dev.cluster import packages
from dev.cluster.cluster import APART
from dev.cluster.deploy import ROOT, deploy, make_wheels
from dev.cluster.driver import IMAGE, PROFILE, Driver
from dev.cluster.processes import ClusterError
from dev.kind.cluster import KindCluster, usable
from dev.kind.engine import PACKAGES

NAME = "npu-dra"
STATE = Path(tempfile.gettempdir()) / NAME / "cluster.json"
BOARDS = ("910b4-8", "a3-16", "300i-duo-2")
"""The boards of the workers, in their order."""


@contextmanager
def _phase(name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)


def up() -> None:
    """Make the cluster, and run the driver on its workers."""
    if STATE.exists():
        raise ClusterError(f"there is a cluster already ({STATE}): end it with `just kind down`")
    if not usable():
        packages.install(*PACKAGES)
    with _phase("cluster"):
        cluster = KindCluster.start(workers=len(BOARDS), name=NAME, outlives=True)
    STATE.write_text(json.dumps(cluster.saved()))
    for node, board in zip(cluster.nodes, BOARDS, strict=True):
        profile = node.root / PROFILE.relative_to("/")
        profile.parent.mkdir(parents=True, exist_ok=True)
        profile.write_text(f"{board}\n")
        Driver(cluster=cluster, node=node).label_node("true")
    for node in cluster.nodes[1:]:  # which tests keep for themselves
        cluster.kubectl("taint", "node", node.name, f"{APART['key']}-")
    deploy(cluster, _phase)
    for node in cluster.nodes[1:]:
        Driver(cluster=cluster, node=node).wait_ready()
    print(cluster.kubectl("get", "nodes,resourceslices"))
    print(" ".join(map(str, cluster.asking("kubectl"))), "get pods")


def load() -> None:
    """Build the driver from this tree, load it into the nodes and replace its pods."""
    cluster = _running()
    with _phase("wheels"):
        make_wheels()
    with _phase("image"):
        cluster.provide_image(ROOT, target="simulator", name=IMAGE)
    with _phase("pods"):
        Driver(cluster=cluster, node=cluster.node).restart()


def down() -> None:
    """End the cluster, and all that came with it."""
    cluster = _running()
    if registry := json.loads(STATE.read_text())["registry"]:
        with suppress(ProcessLookupError):
            os.kill(registry, signal.SIGTERM)
    cluster.stop()


def _running() -> KindCluster:
    if not STATE.exists():
        raise ClusterError("there is no cluster: make one with `just kind up`")
    return KindCluster.found(NAME, json.loads(STATE.read_text()))


if __name__ == "__main__":
    commands = {"up": up, "load": load, "down": down}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"usage: just kind {{{'|'.join(commands)}}}")
    try:
        commands[sys.argv[1]]()
    except ClusterError as error:
        sys.exit(f"just kind {sys.argv[1]}: {error}")
