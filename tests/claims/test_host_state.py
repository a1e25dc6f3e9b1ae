"""Containers get the files that HCCL reads, by the state of the host."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.claims.node import DRIVER
from tests.holds.entries import held
from trio_npu_dra.agent.config.model import EffectiveConfig
from trio_npu_dra.agent.handout.cdi import CdiFolder, Libraries
from trio_npu_dra.agent.holds.entry import HeldDevice
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.ascend.root_info import read_levels
from trio_npu_dra.kit.base.device_metadata import metadata_files

ROOT_INFO = "/etc/hccl_rootinfo.json"
TOPOLOGY = "/usr/local/Ascend/driver/topo"
LIBRARIES = "/usr/local/Ascend/driver/lib64"
NOBODY = 65534
FAMILIES = (ChipFamily.ASCEND_910B, ChipFamily.ASCEND_910_A3, ChipFamily.ASCEND_950)


def device(number: int, family: ChipFamily, **facts: Any) -> HeldDevice:
    """An NPU of a family."""
    one = held(f"npu-{number}", number)
    return one._replace(family=family, chips=(replace(one.chips[0], family=family, **facts),))


def root_info(*physical_ids: int, **changes: Any) -> str:
    """A right one of these chips, but for the changes."""
    right = {
        "version": "2.0",
        "topo_file_path": f"{TOPOLOGY}/950/atlas_950_1.json",
        "rank_count": len(physical_ids),
        "rank_list": [{"device_id": number, "level_list": []} for number in physical_ids],
    }
    return json.dumps(right | changes)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with the driver's topology files, long after they were made."""
    for name in ("host/etc", f"host{TOPOLOGY}/950", f"host{LIBRARIES}", "host/usr/lib64", "sys"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / f"host{TOPOLOGY}/950/atlas_950_1.json").touch()
    for name in ("davinci_manager", "devmm_svm", "hisi_hdc", "uburma/u0", "ummu/u0"):
        node = tmp_path / "dev" / name
        node.parent.mkdir(parents=True, exist_ok=True)
        node.symlink_to(os.devnull)
    return Host(host_root=tmp_path / "host", dev_root=tmp_path / "dev", sysfs_root=tmp_path / "sys")


def put(host: Host, path: str, text: str) -> None:
    """A file of the host."""
    (host.host_root / path.lstrip("/")).write_text(text)


def rendered(host: Host, *devices: HeldDevice) -> dict[str, Any]:
    """The edits for a container with any of these NPUs."""
    libraries = Libraries(path="")
    cdi = CdiFolder(
        root=Path("/etc/cdi"),
        driver_name=DRIVER,
        host=host,
        libraries=libraries,
        metadata=metadata_files(Path("/state"), DRIVER),
    )
    edits: Mapping[str, Any] = cdi.render("uid-a", devices)["containerEdits"]
    return dict(edits)


def given(host: Host, npu: HeldDevice) -> set[str]:
    """The mounts, without the libraries and the topology files."""
    return {*mounts(host, npu)} - {TOPOLOGY, LIBRARIES}


def mounts(host: Host, *devices: HeldDevice) -> list[str]:
    """The paths of the host that are mounted."""
    found = rendered(host, *devices).get("mounts", [])
    assert all(mount["hostPath"] == mount["containerPath"] for mount in found)
    return [mount["hostPath"] for mount in found]


ROOT_INFOS = {
    "right": (root_info(0, 1, 2, 3), True),
    "missing": (None, False),
    "empty": ("", False),
    "no JSON": ("{", False),
    "no object": ("[]", False),
    "deep": ("[" * 100_000, False),
    "of a 910B": (json.dumps({"version": "1.0", "status": "completed"}), False),
    "of an earlier version": (root_info(0, 1, 2, 3, version="1.0"), False),
    "of an A3": (root_info(0, 1, 2, 3, version="1.2"), False),
    "of other chips": (root_info(0, 1, 2), False),
    "ids as texts": (root_info(rank_list=[{"device_id": str(n)} for n in range(4)]), False),
    "topology elsewhere": (root_info(2, 3, topo_file_path="/etc/topo.json"), False),
    "topology upwards": (root_info(2, 3, topo_file_path=f"{TOPOLOGY}/../version.info"), False),
    "topology missing": (root_info(2, 3, topo_file_path=f"{TOPOLOGY}/950/none.json"), False),
}


@pytest.mark.parametrize("state", ROOT_INFOS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_950_gets_a_root_info_that_fits_all_its_chips(
    host: Host, state: str, family: ChipFamily
) -> None:
    """Any other one would end its jobs; the HCCL of other families does not read it."""
    content, fits = ROOT_INFOS[state]
    if content is not None:
        put(host, ROOT_INFO, content)
    found = mounts(host, device(2, family), device(3, family))
    assert (ROOT_INFO in found) == (fits and family is ChipFamily.ASCEND_950)
    assert (TOPOLOGY in found) == (family is not ChipFamily.ASCEND_910B)


def test_a_root_info_counts_as_it_is_at_the_prepare(host: Host) -> None:
    """It may have been written in place since, for the chips that there are now."""
    npus = device(2, ChipFamily.ASCEND_950), device(3, ChipFamily.ASCEND_950)
    put(host, ROOT_INFO, root_info(2))
    assert ROOT_INFO in mounts(host, npus[0])
    assert ROOT_INFO not in mounts(host, *npus)
    put(host, ROOT_INFO, root_info(2, 3))
    assert ROOT_INFO in mounts(host, *npus)
    (host.host_root / ROOT_INFO[1:]).unlink()
    assert ROOT_INFO not in mounts(host, *npus)


def test_levels_of_a_950_are_those_of_its_root_info(host: Host) -> None:
    """As they are there, if HCCL can use it and reads it at all."""
    levels = [{"net_layer": 0, "rank_addr_list": []}]
    put(host, ROOT_INFO, root_info(rank_list=[{"device_id": 2, "level_list": levels}]))
    assert read_levels(host, device(2, ChipFamily.ASCEND_950).chips) == {2: tuple(levels)}
    assert read_levels(host, device(2, ChipFamily.ASCEND_910_A3).chips) == {}
    put(host, ROOT_INFO, root_info(2, version="1.2"))
    assert read_levels(host, device(2, ChipFamily.ASCEND_950).chips) == {}


def test_a_root_info_that_does_not_fit_is_said_once(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """Each time for another reason."""
    caplog.set_level(logging.INFO)
    for content in (root_info(0), "{}"):
        put(host, ROOT_INFO, content)
        for number in (1, 2, 1):
            mounts(host, device(number, ChipFamily.ASCEND_950))
    assert [record.__dict__["problem"] for record in caplog.records] == [
        "rank_list has no device_id 1",
        "rank_list has no device_id 2",
        "version: Field required",
    ]


def no_bus(host: Host) -> set[str]:
    """The files are there for something else."""
    plain_files(host)
    (host.sysfs_root / "class/unified_bus").rmdir()
    return set()


def plain_files(host: Host) -> set[str]:
    """Files and a folder, beside foreign files."""
    lib, bin_ = host.host_root / "usr/lib64", host.host_root / "usr/bin"
    (lib / "urma").mkdir()
    bin_.mkdir()
    names = ("libummu.so.1", "liburma.so.0.2", "libnl-3.so.200", "libc.so.6", "xliburma.so")
    for path in (*(lib / name for name in names), bin_ / "urma_ping", bin_ / "urma_other"):
        path.touch()
    return {f"/usr/lib64/{name}" for name in (*names[:3], "urma")} | {"/usr/bin/urma_ping"}


def links_in_the_folder(host: Host) -> set[str]:
    """As packages make them, one after the other."""
    found = plain_files(host)
    (host.host_root / "usr/lib64/liburma.so.0").symlink_to("liburma.so.0.2")
    (host.host_root / "usr/lib64/liburma.so").symlink_to("/usr/lib64/liburma.so.0")
    return found | {"/usr/lib64/liburma.so.0", "/usr/lib64/liburma.so"}


def links_out_of_the_folder(host: Host) -> set[str]:
    """To the shadow file, to nothing, and to a folder above."""
    found = plain_files(host)
    lib = host.host_root / "usr/lib64"
    put(host, "/etc/shadow", "secret")
    (lib / "liburma_shadow.so").symlink_to("/etc/shadow")
    (lib / "libnl_nothing.so").symlink_to("nothing")
    (lib / "libummu_up.so").symlink_to("..")
    (host.host_root / "usr/bin/urma_admin").symlink_to("../lib64/liburma.so.0.2")
    return found


def links_of_another_user(host: Host) -> set[str]:
    """Somebody else made the link, or the file behind it."""
    found = plain_files(host)
    lib = host.host_root / "usr/lib64"
    if os.geteuid() == 0:  # only root can give a file to another user
        (lib / "liburma.so").symlink_to("liburma.so.0.2")
        os.chown(lib / "liburma.so", NOBODY, NOBODY, follow_symlinks=False)
        (lib / "libnl.so").symlink_to("libnl-3.so.200")
        os.chown(lib / "libnl-3.so.200", NOBODY, NOBODY)
    return found


def other_kinds(host: Host) -> set[str]:
    """A named pipe and a folder instead of files."""
    os.mkfifo(host.host_root / "usr/lib64/liburma.so")
    (host.host_root / "usr/bin/urma_ping").mkdir(parents=True)
    return set()


BUS_STATES = (
    no_bus,
    plain_files,
    links_in_the_folder,
    links_out_of_the_folder,
    links_of_another_user,
    other_kinds,
)


@pytest.mark.parametrize("state", BUS_STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_950_gets_the_user_space_of_the_unified_bus(
    host: Host, state: Callable[[Host], set[str]], family: ChipFamily
) -> None:
    """A link only if it leads to root's file in the same folder; a config can leave all out."""
    (host.sysfs_root / "class/unified_bus").mkdir(parents=True)
    wanted = state(host)
    npu = device(0, family)
    assert given(host, npu) == (wanted if family is ChipFamily.ASCEND_950 else set())
    assert given(host, npu._replace(config=EffectiveConfig(ub_files=False))) == set()
    without_driver = npu._replace(config=EffectiveConfig(driver_mounts=False))
    assert given(host, without_driver) == given(host, npu)


def test_new_files_of_the_unified_bus_are_found(host: Host) -> None:
    """Those that an update of the host brings, or takes away."""
    (host.sysfs_root / "class/unified_bus").mkdir(parents=True)
    npu = device(0, ChipFamily.ASCEND_950)
    assert given(host, npu) == set()
    put(host, "/usr/lib64/liburma.so.0", "")
    assert given(host, npu) == {"/usr/lib64/liburma.so.0"}
    (host.host_root / "usr/lib64/liburma.so.0").unlink()
    assert given(host, npu) == set()


TOPOLOGIES = {
    "a card of one": (0x68, 0, "atlas_350_1"),
    "a card of four": (0x6C, 0, "atlas_350_3"),
    "another card": (0x6A, 0, None),
    "a server of 8": (0x25, 0, "atlas_850_1"),
    "a 1D pod": (0x07, 1, "atlas_950_1"),
    "a 2D pod": (0x03, 2, "atlas_950_2"),
    "a server of 16": (0x25, 3, "atlas_850_2"),
    "a server of 32": (0x25, 4, "atlas_850_3"),
    "a later kind": (0x25, 5, None),
    "a pod that is not told": (0x25, None, None),
    "a board that is not told": (None, 1, None),
}


@pytest.mark.parametrize("board", TOPOLOGIES)
def test_hccl_is_told_the_topology_file_of_the_board(host: Host, board: str) -> None:
    """Only a 950, if the host has the file and the container gets it."""
    mainboard, kind, name = TOPOLOGIES[board]
    facts = {"mainboard_id": mainboard, "super_pod_type": kind}
    npu = device(0, ChipFamily.ASCEND_950, **facts)
    folder = host.host_root / TOPOLOGY[1:] / "950"
    (folder / "atlas_950_1.json").unlink()
    assert topology(host, npu) is None
    for each in {name for *_, name in TOPOLOGIES.values() if name}:
        (folder / f"{each}.json").touch()
    assert topology(host, npu) == (f"{TOPOLOGY}/950/{name}.json" if name else None)
    assert topology(host, npu._replace(config=EffectiveConfig(driver_mounts=False))) is None
    own = EffectiveConfig(env=(("HCCL_TOPO_FILE_PATH", "/own"),))
    assert topology(host, npu._replace(config=own)) == "/own"
    assert topology(host, device(0, ChipFamily.ASCEND_910_A3, **facts)) is None


def variable(host: Host, name: str, *devices: HeldDevice) -> str | None:
    """The value of a variable, which is there once at most."""
    found = [one.partition("=") for one in rendered(host, *devices)["env"]]
    values = [value for key, _, value in found if key == name]
    assert len(values) <= 1
    return values[0] if values else None


def topology(host: Host, *devices: HeldDevice) -> str | None:
    """The path that HCCL gets."""
    return variable(host, "HCCL_TOPO_FILE_PATH", *devices)


def test_physical_ids_are_told_where_a_config_wants_them(host: Host) -> None:
    """Of all NPUs of the claim; of a vNPU the number that its node has in the container."""
    physical = EffectiveConfig(visible_devices="physical")
    npus = [held(f"npu-{number}", number)._replace(config=physical) for number in (10, 9)]
    assert variable(host, "ASCEND_VISIBLE_DEVICES", *npus) == "9,10"
    nodes = {"/dev/davinci115": "/dev/vdavinci115"}
    partition = npus[0]._replace(nodes=nodes, partition=Partition(template="vir05_1c_8g", vnpu=115))
    assert variable(host, "ASCEND_VISIBLE_DEVICES", partition) == "115"
    assert variable(host, "ASCEND_VISIBLE_DEVICES", held("npu-1", 1)) == "void"
