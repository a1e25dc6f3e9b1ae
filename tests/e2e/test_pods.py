"""What happens to claims as pods and their containers come and go."""

from __future__ import annotations

import pytest

from dev.cluster.driver import Driver
from tests.e2e.space import Space, bus_ids, claim, container, pod

pytestmark = pytest.mark.cluster


def test_init_container_and_container_share_the_npu(space: Space) -> None:
    """Both see the one NPU of the claim; a container that does not name the claim sees none."""
    first = container("first", "npu", command=["npu-smi", "info"])
    containers = [container("second", "npu"), container("without")]
    space.apply(claim("npu"), pod("user", "npu", init_containers=[first], containers=containers))
    space.wait_phase("user")
    seen = space.seen_npus("user", container="second")
    assert len(seen) == 1
    assert bus_ids(space.log("user", "first")) == seen
    look = "ls /dev | grep -c davinci || true"
    assert space.execute("user", "sh", "-c", look, container="without") == "0\n"


def test_removed_cdi_file_returns(driver: Driver, space: Space) -> None:
    """The driver writes a deleted CDI file again: a restart of the container needs it."""
    space.start("user")
    uid = space.uid("resourceclaim", "user")
    (name,) = driver.cdi_files()
    before = driver.cdi_spec(uid)
    driver.cluster.node.execute("rm", f"/etc/cdi/{name}")
    driver.cluster.wait(lambda: driver.cdi_files() == [name], "the CDI file is back")
    assert driver.cdi_spec(uid) == before
