"""The driver's way to the node: wheels, image, registry, manifests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.processes import run
from tests.e2e.driver import IMAGE, Driver

ROOT = Path(__file__).parent.parent.parent
OVERLAY = ROOT / "k8s/overlays/simulator"

Phase = Callable[[str], AbstractContextManager[None]]


def deploy(cluster: Cluster, phase: Phase) -> Driver:
    """Build the driver from this tree and run it on the node, with a simulated board.

    Args:
        cluster: Where it goes.
        phase: Times what is done under it.

    Raises:
        ClusterError: A step failed, or the driver did not publish the board in time.
    """
    driver = Driver(cluster=cluster)
    with phase("wheels"):
        run("just", "wheels", cwd=ROOT)
    with phase("image"):
        cluster.provide_image(ROOT, target="simulator", name=IMAGE)
    with phase("apply"):
        cluster.kubectl("label", "node", cluster.node.name, "npu.huawei.com/simulator=true")
        apply(cluster)
    with phase("pod ready"):
        driver.wait_ready()
    with phase("registered"):
        driver.wait_registered()
    with phase("board published"):
        driver.wait_published()
    return driver


def apply(cluster: Cluster) -> None:
    """Apply the manifests with the simulated board."""
    cluster.kubectl("apply", "--kustomize", OVERLAY)
