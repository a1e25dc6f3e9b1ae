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
from trio_npu_dra.kit.base.errors import DeviceNodeMissing


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
    with pytest.raises(DeviceNodeMissing, match="/dev/davinci3"):
        chip_nodes(host, npu(3))
    (host.dev_root / "davinci3").touch()
    with pytest.raises(DeviceNodeMissing, match="/dev/davinci3"):
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
    shared = shared_nodes(host, ChipFamily.ASCEND_910B)
    assert shared[0].host_path == "/dev/davinci_manager"
    assert paths(shared) == ["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]


def test_a_missing_manager_is_an_error(host: Host) -> None:
    """Without davinci_manager no NPU works in a container, so nothing is prepared."""
    add_node(host, "hisi_hdc")
    with pytest.raises(DeviceNodeMissing, match="/dev/davinci_manager"):
        shared_nodes(host, ChipFamily.ASCEND_910B)


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
    add_file(host, "/usr/local/sbin/npu-smi", "/etc/hccn.conf")
    link = host.host_root / "usr/local/bin/npu-smi"
    link.parent.mkdir(parents=True)
    link.symlink_to("/usr/local/sbin/npu-smi")
    (host.host_root / "etc/ascend_install.info").symlink_to("/etc/passwd")
    assert {mount.host_path for mount in driver_mounts(host, ChipFamily.ASCEND_910B)} == {
        "/usr/local/bin/npu-smi",
        "/usr/local/sbin/npu-smi",
        "/etc/hccn.conf",
    }


def test_mounts_that_the_operator_adds_are_those_that_exist(host: Host) -> None:
    """Read-only as the driver's, at their path in the container."""
    add_file(host, "/usr/local/dcmi/libdcmi.so", "/data/models")
    extra = (("/data/models", "/models"), ("/data/missing", "/missing"))
    assert extra_mounts(replace(host, extra_mounts=extra)) == (
        Mount(host_path="/data/models", container_path="/models"),
    )
