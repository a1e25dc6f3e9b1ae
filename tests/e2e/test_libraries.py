"""A container's loader finds the Ascend driver's libraries and its own, whatever the image is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.cluster.api import Object
from dev.cluster.cluster import Cluster, NodeAccess
from dev.cluster.driver import Driver
from tests.e2e.libraries import LIBRARIES, loads
from tests.e2e.space import Space, claim, pod

pytestmark = pytest.mark.cluster

IMAGES = Path(__file__).parent / "library_images"
VOLUME = "/var/tmp/of-another-pod"
DECOY = "/var/tmp/decoy"
"""Where the hostile image has its /etc; its links mean that folder, and the node has one too."""


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
    """It does so for root and another user, without LD_LIBRARY_PATH; npu-smi works.

    Device nodes are open to any user. The variable `void` keeps Ascend's runtime from adding NPUs.
    """
    space.apply(claim("npu"), run_as(pod("user", "npu"), user))
    space.wait_phase("user")
    assert loads(space, "libdcmi.so") == f"{LIBRARIES}/libdcmi.so"
    assert "LD_LIBRARY_PATH" not in space.execute("user", "env")
    assert len(space.seen_npus("user")) == 1
    assert space.execute("user", "printenv", "ASCEND_VISIBLE_DEVICES") == "void\n"
    assert space.execute("user", "sh", "-c", "stat -c %a /dev/davinci*").split() == ["666", "666"]


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


@pytest.mark.parametrize("name", ["distroless", "lib64"])
def test_an_image_without_shell_and_ldconfig_finds_all(
    cluster: Cluster, space: Space, name: str
) -> None:
    """A user other than root finds them; one image has its libraries where openEuler has them."""
    user = run_as(pod("user", "npu", image=provided(cluster, name)), 1000)
    main = user["spec"]["containers"][0]
    main["command"] = ["/usr/bin/look", "libdcmi.so", "libown.so"]
    space.apply(claim("npu"), user)
    space.wait_phase("user", "Succeeded")
    found = dict(line.split() for line in space.log("user", "main").splitlines())
    assert found["libdcmi.so"] == f"{LIBRARIES}/libdcmi.so"
    assert found["libown.so"].endswith("/libown.so")


def reachable(node: NodeAccess) -> str:
    """What the links of the hostile image mean where the image is not the root."""
    look = f"find {VOLUME} {DECOY} /etc/ld.so* -ls -type f -exec sha256sum {{}} ';'"
    evil = "find /run /etc -maxdepth 1 -name evil-ran"
    return node.execute("sh", "-c", f"{look}; {evil}")


def test_a_hostile_image_changes_nothing_outside_itself(cluster: Cluster, space: Space) -> None:
    """Volumes and node folders behind its links stay as they are; no program of it runs there."""
    image = provided(cluster, "hostile")
    for folder in (VOLUME, DECOY):
        decoys = f"mkdir -p {folder}/ld.so.conf.d; echo decoy >{folder}/ld.so.cache"
        cluster.node.execute("sh", "-c", decoys)
    before = reachable(cluster.node)
    user = pod("user", "npu", image=image)
    user["spec"]["volumes"] = [{"name": "data", "hostPath": {"path": VOLUME, "type": "Directory"}}]
    mount = {"name": "data", "mountPath": "/data"}
    user["spec"]["containers"][0]["volumeMounts"] = [mount]
    space.apply(claim("npu"), user)
    space.wait_phase("user")

    assert reachable(cluster.node) == before
    assert "evil-ran" not in before
    assert space.execute("user", "ls", "/run/evil-ran") == "/run/evil-ran\n"  # it would tell
    assert loads(space, "libdcmi.so") == f"{LIBRARIES}/libdcmi.so"


def test_flag_replaces_the_images_path_or_leaves_libraries_to_the_image(
    cluster: Cluster, driver: Driver, space: Space
) -> None:
    """`env` is for nodes on which no hook may run; `none` sets no LD_LIBRARY_PATH either."""
    driver.set_environment("NPU_DRA_CONTAINER_LIBRARIES=env")
    try:
        space.apply(claim("npu"), pod("user", "npu", image=provided(cluster, "cann")))
        space.wait_phase("user")
        given = space.execute("user", "printenv", "LD_LIBRARY_PATH")
        assert given.startswith(f"{LIBRARIES}:{LIBRARIES}/common:")
        assert loads(space, "libapp.so") == ""
        assert len(space.seen_npus("user")) == 1
        space.delete_pod("user")

        driver.set_environment("NPU_DRA_CONTAINER_LIBRARIES=none")
        space.start("user")
        assert loads(space, "libdcmi.so") == ""
        assert "LD_LIBRARY_PATH" not in space.execute("user", "env")
    finally:
        driver.set_environment("NPU_DRA_CONTAINER_LIBRARIES-")
