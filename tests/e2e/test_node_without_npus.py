"""Our manifests as they are, on a node that has neither NPUs nor an Ascend driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.cluster import deploy
from dev.cluster.driver import Driver

pytestmark = pytest.mark.cluster

BASE = deploy.ROOT / "k8s/base"
BOARDS_TRACES = (
    *("/usr/local/Ascend", "/usr/local/dcmi", "/usr/local/bin/npu-smi"),
    *("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    *(f"/dev/davinci{number}" for number in range(8)),
)


@pytest.fixture
def bare(driver: Driver) -> Iterator[Driver]:
    """The driver without a board; afterwards the board is there again."""
    driver.remove()
    driver.cluster.node.execute("rm", *BOARDS_TRACES)
    driver.cluster.kubectl("apply", "--kustomize", BASE)
    yield driver
    driver.remove()
    deploy.apply(driver.cluster)
    driver.wait_rolled_out()


def test_pool_is_empty_and_the_driver_stays(bare: Driver) -> None:
    """The node has one slice without devices, which says more than none; the daemon serves on."""
    pod = bare.wait_ready()
    bare.wait_registered()
    bare.cluster.wait(lambda: bare.slices() and not bare.devices(), "an empty pool")
    (published,) = bare.slices()
    assert published["spec"]["pool"]["resourceSliceCount"] == 1
    (state,) = pod["status"]["containerStatuses"]
    assert state["restartCount"] == 0
    assert "no Ascend NPU on this node" in bare.said(pod)
