import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trio_npu_dra.ascend.container import (
    DeviceNode,
    Mount,
    chip_nodes,
    driver_mounts,
    extra_mounts,
    shared_nodes,
)
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.kit.base.errors import HostFileMissing


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with nothing in it."""
    for name in ("host", "dev", "sys/bus/pci/devices"):
        (tmp_path / name).mkdir(parents=True)
    return Host(host_root=tmp_path / "host", dev_root=tmp_path / "dev", sysfs_root=tmp_path / "sys")


def add_pci_device(
    host: Host,
    address: str,
    *,
    vendor: str = "0x19e5",
    pci_class: str = "0x120000",
    numa_node: str = "0",
) -> None:
    """Put a device below root complex pci0000:c0, as the kernel lays sysfs out."""
    place = host.sysfs_root / "devices/pci0000:c0/0000:c0:00.0" / address
    place.mkdir(parents=True)
    for name, text in (("vendor", vendor), ("class", pci_class), ("numa_node", numa_node)):
        (place / name).write_text(f"{text}\n")
    link = host.sysfs_root / "bus/pci/devices" / address
    link.symlink_to(f"../../../devices/pci0000:c0/0000:c0:00.0/{address}")


def add_node(host: Host, *names: str) -> None:
    """Put character devices into /dev."""
    for name in names:
        path = host.dev_root / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to("/dev/null")


def add_file(host: Host, *paths: str) -> None:
    """Put files into the host's tree."""
    for path in paths:
        place = host.host_root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()


def npu(physical_id: int) -> Chip:
    """An NPU with a number."""
    return Chip(
        ref=ChipRef(0, 0),
        physical_id=physical_id,
        logic_id=0,
        card_id=0,
        device_id=0,
        family=ChipFamily.ASCEND_910B,
        chip_name="910B4",
    )


def paths(nodes: tuple[DeviceNode, ...]) -> list[str]:
    """Where containers see *nodes*."""
    return [node.path for node in nodes]


def test_huawei_accelerators_on_the_pci_bus_are_found(host: Host) -> None:
    """An NPU is found without its driver; Huawei's disks and others' accelerators are not NPUs."""
    add_pci_device(host, "0000:c1:00.0")
    add_pci_device(host, "0000:41:00.0")
    add_pci_device(host, "0000:05:00.0", pci_class="0x010802")
    add_pci_device(host, "0000:06:00.0", vendor="0x10de")
    assert host.accelerators() == ("0000:41:00.0", "0000:c1:00.0")
    assert host.is_ascend_present()


def test_a_node_without_npus_has_no_ascend_hardware(host: Host) -> None:
    """Nothing on the bus and no driver: no NPUs, whether or not sysfs is there."""
    assert not host.is_ascend_present()
    assert not Host(dev_root=host.dev_root, sysfs_root=Path("/nowhere")).is_ascend_present()
    add_node(host, "davinci_manager")  # of a 310B, which is on no PCI bus
    assert host.is_ascend_present()


def test_numa_node_and_root_complex_come_from_sysfs(host: Host) -> None:
    """The kernel's tree says where a PCI device hangs; node 0 is one like the others."""
    add_pci_device(host, "0000:c1:00.0", numa_node="6")
    add_pci_device(host, "0000:c2:00.0", numa_node="0")
    assert host.numa_node("0000:c1:00.0") == 6
    assert host.numa_node("0000:c2:00.0") == 0
    assert host.pcie_root("0000:c1:00.0") == "pci0000:c0"
    assert host.numa_node("0000:99:00.0") is None
    assert host.pcie_root("0000:99:00.0") is None


def test_the_nearest_cpus_come_from_sysfs(host: Host) -> None:
    """As the kernel writes the list; a device without one has none."""
    add_pci_device(host, "0000:c1:00.0")
    assert host.local_cpus("0000:c1:00.0") is None
    place = host.sysfs_root / "bus/pci/devices/0000:c1:00.0/local_cpulist"
    place.write_text("144-167,336-359\n")
    assert host.local_cpus("0000:c1:00.0") == "144-167,336-359"


def test_numa_nodes_are_known_by_their_cpus(host: Host) -> None:
    """Both ways; a node without CPUs has memory alone."""
    assert (host.numa_node_of("0-23"), host.cpus_of(0)) == (None, None)
    for name, cpus in (("node0", "0-23"), ("node1", "24-47"), ("node2", ""), ("has_cpu", "0-1")):
        place = host.sysfs_root / "devices/system/node" / name
        place.mkdir(parents=True)
        (place / "cpulist").write_text(f"{cpus}\n")
    assert (host.numa_node_of("24-47"), host.cpus_of(1)) == (1, "24-47")
    assert (host.numa_node_of(""), host.cpus_of(2)) == (None, None)
    assert host.numa_node_of("0-47") is None


@pytest.mark.parametrize("text", ["-1", "", "many"])
def test_an_unknown_numa_node_is_none(host: Host, text: str) -> None:
    """What the kernel writes for "unknown" is not taken for node 0."""
    add_pci_device(host, "0000:c1:00.0", numa_node=text)
    assert host.numa_node("0000:c1:00.0") is None


def test_a_310b_without_a_manager_for_containers_has_the_usual_one(host: Host) -> None:
    """Drivers that have no second one give the first."""
    add_node(host, "davinci_manager", "svm0")
    assert shared_nodes(host, ChipFamily.ASCEND_310B)[0] == DeviceNode(
        path="/dev/davinci_manager", host_path="/dev/davinci_manager"
    )


def test_a_chip_has_its_node_or_is_refused(host: Host) -> None:
    """/dev/davinci<N> is at the same path in the container; a file cannot be passed on."""
    with pytest.raises(HostFileMissing, match="/dev/davinci3"):
        chip_nodes(host, npu(3))
    (host.dev_root / "davinci3").touch()
    with pytest.raises(HostFileMissing, match="/dev/davinci3"):
        chip_nodes(host, npu(3))
    (host.dev_root / "davinci3").unlink()
    add_node(host, "davinci3")
    assert chip_nodes(host, npu(3)) == (
        DeviceNode(path="/dev/davinci3", host_path="/dev/davinci3"),
    )


def test_shared_nodes_are_those_that_exist(host: Host) -> None:
    """The manager comes first; of the others those that the driver made, none of other families."""
    add_node(host, "hisi_hdc", "devmm_svm", "davinci_manager", "vpc", "uburma/udma1")
    add_node(host, "davinci_manager_docker")
    (host.dev_root / "dvpp_cmdlist").touch()
    shared = shared_nodes(host, ChipFamily.ASCEND_910B)
    assert shared[0].host_path == "/dev/davinci_manager"
    assert paths(shared) == ["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]
    assert host.unfit == {"/dev/dvpp_cmdlist"}


CARD = (
    *("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    "/usr/local/Ascend/driver/lib64/",
)
SOC = ("/dev/davinci_manager", "/dev/svm0")
NEEDED: dict[str, tuple[ChipFamily, tuple[str, ...]]] = {
    "card of 310": (ChipFamily.ASCEND_310, CARD),
    "Atlas 500": (ChipFamily.ASCEND_310, (*CARD[:3], "/home/data/miniD/driver/lib64/")),
    "Atlas 200I A2": (ChipFamily.ASCEND_310B, ("/dev/davinci_manager", "/usr/lib64/libdcmi.so")),
    "200I A2 for containers": (ChipFamily.ASCEND_310B, ("/dev/davinci_manager_docker", CARD[3])),
    "card of 310P": (ChipFamily.ASCEND_310P, CARD),
    "200I SoC": (ChipFamily.ASCEND_310P, (*SOC, "/etc/sys_version.conf")),
    "910": (ChipFamily.ASCEND_910, CARD),
    "910B": (ChipFamily.ASCEND_910B, CARD),
    "A3": (ChipFamily.ASCEND_910_A3, CARD),
    "950": (
        ChipFamily.ASCEND_950,
        (CARD[0], "/dev/uburma/uburma0", CARD[2], "/dev/ummu/ummu0", CARD[3]),
    ),
}


def lay(host: Host, path: str) -> Path:
    """Give the host a device node, a folder or a file."""
    if path.startswith("/dev/"):
        add_node(host, path.removeprefix("/dev/"))
        return host.dev_root / path.removeprefix("/dev/")
    place = host.host_root / path.strip("/")
    if path.endswith("/"):
        place.mkdir(parents=True)
    else:
        add_file(host, path)
    return place


@pytest.mark.parametrize(
    ("board", "path"), [(board, path) for board, (_, needed) in NEEDED.items() for path in needed]
)
@pytest.mark.parametrize("is_other", [False, True])
def test_a_container_is_refused_without_what_its_family_needs(
    host: Host, board: str, path: str, *, is_other: bool
) -> None:
    """Each by itself, missing or of another kind; the error names it and can be tried again."""
    family, needed = NEEDED[board]
    places = {each: lay(host, each) for each in needed}
    shared_nodes(host, family), driver_mounts(host, family)
    if places[path].is_symlink() or places[path].is_file():
        places[path].unlink()
        if is_other:
            places[path].mkdir()
    else:
        places[path].rmdir()
        if is_other:
            places[path].touch()

    with pytest.raises(HostFileMissing) as caught:
        shared_nodes(host, family), driver_mounts(host, family)

    assert caught.value.retryable
    named = str(caught.value).split(" is missing")[0]
    assert named.removesuffix("*") in path or board in {"Atlas 500", "200I SoC"} or "310B" in family


def test_what_an_operator_adds_is_not_missing(host: Host) -> None:
    """As on a node whose Ascend driver is installed elsewhere."""
    (host.host_root / "opt/driver/lib64").mkdir(parents=True)
    moved = replace(host, extra_mounts=(("/opt/driver", "/usr/local/Ascend/driver"),))
    assert driver_mounts(moved, ChipFamily.ASCEND_910B) == ()
    other = replace(host, extra_mounts=(("/opt/driver", "/usr/local/Ascend/driver2"),))
    with pytest.raises(HostFileMissing, match="driver/lib64/ is missing on the node, or is not a"):
        driver_mounts(other, ChipFamily.ASCEND_910B)


def test_driver_mounts_are_what_exists_at_the_hosts_path(host: Host) -> None:
    """A mount's source is the path without the root below which we see the host; read-only."""
    add_file(host, "/usr/local/Ascend/driver/lib64/libx.so", "/usr/local/bin/npu-smi")
    mounts = driver_mounts(host, ChipFamily.ASCEND_910B)
    assert [mount.host_path for mount in mounts] == [
        "/usr/local/Ascend/driver/lib64",
        "/usr/local/bin/npu-smi",
    ]
    assert mounts[1] == Mount(
        host_path="/usr/local/bin/npu-smi",
        container_path="/usr/local/bin/npu-smi",
        options=("ro", "rbind", "rprivate"),
    )


def test_an_absolute_link_of_the_host_is_followed_in_its_tree(host: Host) -> None:
    """A link to an absolute path is there if the target is on the host, not if it is on ours."""
    lay(host, CARD[3])
    add_file(host, "/usr/local/sbin/npu-smi", "/etc/hccn.conf")
    link = host.host_root / "usr/local/bin/npu-smi"
    link.parent.mkdir(parents=True)
    link.symlink_to("/usr/local/sbin/npu-smi")
    (host.host_root / "etc/ascend_install.info").symlink_to("/etc/passwd")
    assert {mount.host_path for mount in driver_mounts(host, ChipFamily.ASCEND_910B)} == {
        "/usr/local/Ascend/driver/lib64",
        "/usr/local/bin/npu-smi",
        "/usr/local/sbin/npu-smi",
        "/etc/hccn.conf",
    }


OTHER_KINDS: dict[str, Callable[[Path], object]] = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "file": Path.touch,
    "lost link": lambda path: path.symlink_to("nothing"),
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_path_of_another_kind_is_left_out(host: Host, kind: str) -> None:
    """A runtime would refuse to mount a folder on a file; what is gone again is not named."""
    lay(host, CARD[3])
    name = "etc/hccn.conf" if kind != "file" else "usr/local/dcmi"
    place = host.host_root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    OTHER_KINDS[kind](place)
    path = f"/{name}/" if kind == "file" else f"/{name}"

    (mount,) = driver_mounts(host, ChipFamily.ASCEND_910B)
    assert mount.host_path == "/usr/local/Ascend/driver/lib64"
    assert host.unfit == ({path} if kind != "lost link" else set())

    place.rmdir() if kind == "folder" else place.unlink()
    lay(host, path)
    assert len(driver_mounts(host, ChipFamily.ASCEND_910B)) == 2
    assert host.unfit == set()


def test_mounts_that_the_operator_adds_are_the_files_and_folders_that_exist(host: Host) -> None:
    """Read-only as the driver's, at their path in the container."""
    add_file(host, "/usr/local/dcmi/libdcmi.so", "/data/models")
    os.mkfifo(host.host_root / "data/pipe")
    names = ("/models", "/missing", "/pipe")
    extra = (*((f"/data{name}", name) for name in names), ("/usr/local", "/local"))
    mounts = extra_mounts(given := replace(host, extra_mounts=extra))
    assert mounts == (
        Mount(host_path="/data/models", container_path="/models"),
        Mount(host_path="/usr/local", container_path="/local"),
    )
    assert given.unfit == {"/data/pipe"}
