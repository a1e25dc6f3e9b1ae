"""The driver's way to the node: wheels, image, registry, manifests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from dev.cluster.binaries import locked
from dev.cluster.cluster import Cluster
from dev.cluster.driver import IMAGE, Driver
from dev.cluster.processes import run
from requirements.revision import revision

ROOT = Path(__file__).parent.parent.parent
OVERLAY = ROOT / "k8s/overlays/simulator"
INGREDIENTS = (
    *("LICENSE", "NOTICE", "README.md", "justfile", "pyproject.toml", "setup.py"),
    *("requirements/runtime.txt", "trio_npu_dra/**/*"),
)
"""What the wheels are made of."""

Phase = Callable[[str], AbstractContextManager[None]]


def deploy(cluster: Cluster, phase: Phase) -> Driver:
    """Build the driver from this tree and run it on the node, with a simulated board.

    Args:
        cluster: Where it goes.
        phase: Times what is done under it.

    Raises:
        ClusterError: A step failed, or the driver did not publish the board in time.
    """
    driver = Driver(cluster=cluster, node=cluster.node)
    with locked("driver"):  # another session may do the same for its cluster
        with phase("wheels"):
            make_wheels()
        with phase("image"):
            cluster.provide_image(ROOT, target="simulator", name=IMAGE)
    with phase("apply"):
        driver.label_node("true")
        apply(cluster)
    with phase("pod ready"):
        driver.wait_ready()
    with phase("registered"):
        driver.wait_registered()
    with phase("board published"):
        driver.wait_published()
    return driver


def make_wheels() -> None:
    """Collect what goes into the image, unless that was done for just this tree."""
    made = ROOT / "build/made-of"
    wanted = "".join(_digests())
    if not made.exists() or made.read_text() != wanted:
        run("just", "wheels", cwd=ROOT)
        made.write_text(wanted)


def _digests() -> Iterator[str]:
    yield f"{revision(ROOT)}\n"
    for pattern in INGREDIENTS:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and path.suffix != ".pyc":
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                yield f"{digest} {path.relative_to(ROOT)}\n"


def apply(cluster: Cluster) -> None:
    """Apply the manifests with the simulated board."""
    cluster.kubectl("apply", "--kustomize", OVERLAY)
