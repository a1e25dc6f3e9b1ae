"""A container's loader finds the Ascend driver's libraries and its own, whatever the image is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.api import Object
from tests.cluster.cluster import Cluster
from tests.e2e.driver import Driver
from tests.e2e.libraries import LIBRARIES, loads
from tests.e2e.space import Space, claim, pod

pytestmark = pytest.mark.cluster

IMAGES = Path(__file__).parent / "library_images"
VOLUME = "/var/tmp/of-another-pod"


def provided(cluster: Cluster, name: str) -> str:
    """One of the images, by the name that pods give it."""
    cluster.provide_image(IMAGES, target=name, name=f"library/libraries-{name}:1")
    return f"libraries-{name}:1"


def run_as(pod: Object, user: int) -> Object:
    """The pod, as that user."""
    pod["spec"]["securityContext"] = {"runAsUser": user, "runAsGroup": user}
    return pod


@pytest.mark.every_version
@pytest.mark.parametrize("user", [0, 1000])
def test_a_bare_image_finds_the_drivers_libraries(space: Space, user: int) -> None:
    """As root and not, and without LD_LIBRARY_PATH; npu-smi works."""
    space.apply(claim("npu"), run_as(pod("user", "npu"), user))
    space.wait_phase("user")
    assert loads(space, "libdcmi.so") == f"{LIBRARIES}/libdcmi.so"
    assert "LD_LIBRARY_PATH" not in space.execute("user", "env")
    assert len(space.seen_npus("user")) == 1


@pytest.mark.parametrize("user", [0, 1000])
def test_an_image_with_paths_of_its_own_keeps_them(
    cluster: Cluster, space: Space, user: int
) -> None:
    """Its LD_LIBRARY_PATH and its ld.so.conf count beside the driver's folders."""
    image = provided(cluster, "cann")
    space.apply(claim("npu"), run_as(pod("user", "npu", image=image), user))
    space.wait_phase("user")
    assert loads(space, "libdcmi.so") == f"{LIBRARIES}/libdcmi.so"
    assert loads(space, "libapp.so") == "/opt/app/lib/libapp.so"
    assert loads(space, "libown.so") == "/opt/configured/libown.so"
    assert space.execute("user", "printenv", "LD_LIBRARY_PATH") == "/opt/app/lib\n"
    assert len(space.seen_npus("user")) == 1


def test_a_root_that_is_read_only_is_no_obstacle(space: Space) -> None:
    """The runtime makes it so after the hook has run."""
    user = pod("user", "npu")
    user["spec"]["containers"][0]["securityContext"] = {"readOnlyRootFilesystem": True}
    space.apply(claim("npu"), user)
    space.wait_phase("user")
    assert loads(space, "libdcmi.so") == f"{LIBRARIES}/libdcmi.so"


def test_a_hostile_image_changes_nothing_outside_itself(cluster: Cluster, space: Space) -> None:
    """Neither a volume to which its links lead, nor the node; no program of it runs there."""
    image = provided(cluster, "hostile")
    node = cluster.node
    node.execute("mkdir", "-p", VOLUME)
    user = pod("user", "npu", image=image)
    user["spec"]["volumes"] = [{"name": "data", "hostPath": {"path": VOLUME, "type": "Directory"}}]
    mount = {"name": "data", "mountPath": "/data"}
    user["spec"]["containers"][0]["volumeMounts"] = [mount]
    space.apply(claim("npu"), user)
    space.wait_phase("user")

    assert node.execute("ls", "-A", VOLUME) == ""
    assert node.execute("find", "/run", "/etc", "-maxdepth", "1", "-name", "evil-ran") == ""
    assert space.execute("user", "ls", "/run/evil-ran") == "/run/evil-ran\n"  # it would tell
    assert loads(space, "libdcmi.so") == f"{LIBRARIES}/libdcmi.so"


def test_env_replaces_the_images_path(cluster: Cluster, driver: Driver, space: Space) -> None:
    """With --container-libraries=env, for nodes on which no hook may run."""
    driver.set_environment("NPU_DRA_CONTAINER_LIBRARIES=env")
    try:
        space.apply(claim("npu"), pod("user", "npu", image=provided(cluster, "cann")))
        space.wait_phase("user")
        given = space.execute("user", "printenv", "LD_LIBRARY_PATH")
        assert given.startswith(f"{LIBRARIES}:{LIBRARIES}/common:")
        assert loads(space, "libapp.so") == ""
        assert len(space.seen_npus("user")) == 1
    finally:
        driver.set_environment("NPU_DRA_CONTAINER_LIBRARIES-")


def test_none_leaves_it_to_the_image(driver: Driver, space: Space) -> None:
    """With --container-libraries=none there is neither hook nor LD_LIBRARY_PATH."""
    driver.set_environment("NPU_DRA_CONTAINER_LIBRARIES=none")
    try:
        space.apply(claim("npu"), pod("user", "npu"))
        space.wait_phase("user")
        assert loads(space, "libdcmi.so") == ""
        assert "LD_LIBRARY_PATH" not in space.execute("user", "env")
    finally:
        driver.set_environment("NPU_DRA_CONTAINER_LIBRARIES-")
