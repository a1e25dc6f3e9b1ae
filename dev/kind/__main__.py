"""`just kind up`, `load`, `kubectl` and `down`: a cluster with the driver on simulated boards.

It goes on when the command has ended, and is there to work with; there is one at a time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.cluster import packages
from dev.cluster.cluster import APART
from dev.cluster.deploy import ROOT, deploy, make_wheels
from dev.cluster.driver import IMAGE, PROFILE, Driver
from dev.cluster.processes import ClusterError
from dev.kind.cluster import KindCluster, remove, usable
from dev.kind.engine import Engine

NAME = "npu-dra"
FOLDER = Path(tempfile.gettempdir()) / NAME
READY = FOLDER / "ready"
BOARDS = ("910b4-8", "a3-16", "300i-duo-2")
"""The boards of the workers, in their order."""


@contextmanager
def _phase(name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)


def up() -> None:
    """Make the cluster, and run the driver on its workers."""
    if _runs():
        raise ClusterError("there is a cluster already: end it with `just kind down`")
    if not usable():
        packages.install()
    down()  # one that was not finished, or ended with the machine
    with _phase("cluster"):
        cluster = KindCluster.start(workers=len(BOARDS), name=NAME, outlives=True)
    for node, board in zip(cluster.nodes, BOARDS, strict=True):
        script = 'mkdir -p "${1%/*}" && echo "$2" >"$1"'
        node.execute("sh", "-c", script, "sh", PROFILE, board)
        Driver(cluster=cluster, node=node).label_node("true")
    for node in cluster.nodes[1:]:  # which tests keep for themselves
        cluster.kubectl("taint", "node", node.name, f"{APART['key']}-")
    deploy(cluster, _phase)
    for node in cluster.nodes[1:]:
        Driver(cluster=cluster, node=node).wait_ready()
    READY.touch()
    print(cluster.kubectl("get", "nodes,resourceslices"))
    print("ask it with: just kind kubectl get pods")


def load() -> None:
    """Build the driver from this tree, load it into the nodes and replace its pods."""
    cluster = _running()
    with _phase("wheels"):
        make_wheels()
    with _phase("image"):
        cluster.provide_image(ROOT, target="simulator", name=IMAGE)
    with _phase("pods"):
        Driver(cluster=cluster, node=cluster.node).restart()


def kubectl(*arguments: str) -> None:
    """Become kubectl as the administrator."""
    words = [str(word) for word in _running().asking("kubectl")]
    os.execvp(words[0], [*words, *arguments])  # noqa: S606 - no shell has a part in it


def down() -> None:
    """End the cluster, and all that came with it."""
    remove(Engine.found(f"{NAME}-docker"), NAME)


def _runs() -> bool:
    return READY.exists() and Engine.found(f"{NAME}-docker").pid != 0


def _running() -> KindCluster:
    if not _runs():
        raise ClusterError("no cluster runs: make one with `just kind up`")
    return KindCluster.found(NAME, workers=len(BOARDS))


def main(command: str = "", *arguments: str) -> None:
    """Run a command; only that of kubectl has arguments."""
    commands = {"up": up, "load": load, "down": down}
    try:
        if command == "kubectl":
            kubectl(*arguments)
        elif command in commands and not arguments:
            commands[command]()
        else:
            sys.exit("usage: just kind {up|load|down|kubectl ARGUMENTS}")
    except ClusterError as error:
        sys.exit(f"just kind {command}: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
