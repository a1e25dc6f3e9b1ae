"""Boards other than eight 910B4, on a node of their own, and the devices of their containers."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dev.cluster.api import Object
from dev.cluster.cluster import NodeAccess
from dev.cluster.driver import BOARD, DEVICES_FILE, PLUGIN, PROFILE, Driver
from tests.e2e.space import Space, claim, container, placed, pod, request
from trio_npu_dra.lab.simulator import Profile

DRIVER_FILES = (
    *(f"/usr/local/Ascend/driver/{name}" for name in ("lib64", "include", "tools", "version.info")),
    *("/usr/local/dcmi", "/usr/local/bin/npu-smi"),
)
"""What a simulated board has of the files that containers get."""
FIRST_LINE = re.compile(r"\| \d+[ |]+(?P<name>\S+) +\| OK +\|")
SECOND_LINE = re.compile(r"\|[ \d|]+\| (?P<bus>NA|[0-9A-F]{4}:[0-9A-F:.]+) +\|(?P<use>.*)")
SIZE = re.compile(r"/ (\d+)")
IN_DEV = "find /dev -type c -not -path '/dev/pts/*'"


@dataclass(frozen=True, kw_only=True)
class Given:
    """The devices and files that the container of a pod must have.

    Attributes:
        cel: Chooses the devices for its claim.
        devices: The devices, each with the nodes of its chips below `/dev`.
        shared: The nodes below `/dev` that every container with an NPU of this board has.
        chips: What npu-smi must show of each chip: name, bus id, memory in MB.
        more_files: Files of the host, besides `DRIVER_FILES`.
    """

    cel: str
    devices: dict[str, tuple[str, ...]]
    shared: tuple[str, ...]
    chips: list[tuple[str, str, int]]
    more_files: tuple[str, ...] = ()


@contextmanager
def with_user_space_of_the_bus(node: NodeAccess) -> Iterator[None]:
    """The node has libraries of the unified bus, and one that is a link to something else."""
    libraries = BOARD.with_name("lib64")
    node.execute("mkdir", "-p", libraries)
    node.execute("cp", "-a", "/usr/lib64/.", libraries)
    node.execute("touch", libraries / "liburma.so.0.2")
    node.execute("ln", "-sf", "liburma.so.0.2", libraries / "liburma.so.0")
    node.execute("ln", "-sf", "/etc/shadow", libraries / "libummu.so")
    node.execute("mount", "--bind", libraries, "/usr/lib64")
    yield
    node.execute("umount", "--lazy", "/usr/lib64")
    node.execute("rm", "-rf", libraries)


@contextmanager
def laid_out(
    driver: Driver, node: NodeAccess, board: Profile, *flags: str, in_pool: bool = True
) -> Iterator[Driver]:
    """The driver runs on a node with that board; afterwards both are gone, and all that they kept.

    Args:
        driver: The driver.
        node: One on which it does not run yet.
        board: What it has there.
        flags: Those of `npu-dra simulate`.
        in_pool: Whether to wait until the board is published, and not in a device plugin resource.
    """
    there = dataclasses.replace(driver, node=node)
    profile = node.root / PROFILE.relative_to("/")
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text(" ".join((board.name, *flags)))
    there.label_node("true")
    there.wait_ready()
    there.wait_registered()
    if in_pool:
        there.cluster.wait(lambda: _models(there) == {board.chip.name}, f"{board.name} published")
    yield there
    there.label_node(None)
    there.cluster.wait(lambda: there.pid() is None, f"no driver on {node.name}")
    clear(there, board)


def clear(driver: Driver, board: Profile) -> None:
    """Remove that board from the node, which the driver has left, and all that the driver kept."""
    chips = (f"davinci{each.physical_id}" for each in board.devices)
    shared = {name.partition("/")[0] for name in board.shared_nodes}
    kept = (f"{PLUGIN}/claims/{name}" for name in driver.pod_records())
    driver.node.execute("rm", "-rf", BOARD, *as_paths((*chips, *shared)), *kept, DEVICES_FILE)


def wait_published(driver: Driver, names: set[str]) -> None:
    """Wait until these devices, and no others, are published on the driver's node."""
    driver.cluster.wait(lambda: set(driver.devices()) == names, f"the devices {sorted(names)}")


def _models(driver: Driver) -> set[str]:
    return {each["attributes"]["chipName"]["string"] for each in driver.devices().values()}


# --- pods ----------------------------------------------------------------------------------------


def begin(driver: Driver, space: Space, name: str, given: Given) -> None:
    """Create a pod for the driver's node, with a container whose claim asks for those devices."""
    containers = [container("main", name), container("without")]
    wanted = claim(name, request(cel=given.cel, count=len(given.devices)))
    space.apply(wanted, placed(pod(name, name, containers=containers), driver.node))


def assert_has(driver: Driver, space: Space, name: str, given: Given) -> None:
    """The pod has just those devices: as npu-smi shows them, in /dev, and in the CDI file."""
    space.wait_phase(name)
    assert space.allocated(name) == sorted(given.devices)
    assert seen_chips(space.execute(name, "npu-smi", "info", container="main")) == given.chips
    chips = (node for nodes in given.devices.values() for node in nodes)
    usual = nodes_in(space, name, "without")
    assert nodes_in(space, name, "main") - usual == as_paths((*given.shared, *chips))
    uid = space.uid("resourceclaim", name)
    assert_says(driver.cdi_spec(uid), uid, given)


def assert_says(spec: Object, uid: str, given: Given) -> None:
    """The CDI file of the claim with that UID has just those devices."""
    shared = spec["containerEdits"]
    assert cdi_nodes(shared) == as_paths(given.shared)
    mounts = {mount["hostPath"]: mount["containerPath"] for mount in shared["mounts"]}
    assert mounts == {path: path for path in (*DRIVER_FILES, *given.more_files)}
    devices = {
        each["name"]: cdi_nodes(each["containerEdits"])
        for each in spec["devices"]
        if "deviceNodes" in each["containerEdits"]  # without them it brings metadata
    }
    assert devices == {f"{uid}-{name}": as_paths(nodes) for name, nodes in given.devices.items()}


def seen_chips(table: str) -> list[tuple[str, str, int]]:
    """Name, bus id and memory in MB of each chip that npu-smi printed, all of which are well."""
    found = []
    for first, second in itertools.pairwise(table.splitlines()):
        about, where = FIRST_LINE.match(first), SECOND_LINE.match(second)
        if about and where:
            memory = max(map(int, SIZE.findall(where["use"])))
            found.append((about["name"], where["bus"].lower(), memory))
    return found


def nodes_in(space: Space, pod: str, container: str) -> set[str]:
    """The character devices in a container."""
    return set(space.execute(pod, "sh", "-c", IN_DEV, container=container).split())


def cdi_nodes(edits: Object) -> set[str]:
    """The device nodes of CDI edits, each of which has its host's path."""
    assert all(node["path"] == node["hostPath"] for node in edits["deviceNodes"])
    return {node["path"] for node in edits["deviceNodes"]}


def as_paths(names: Iterable[str]) -> set[str]:
    """Names below `/dev` as paths."""
    return {f"/dev/{name}" for name in names}
