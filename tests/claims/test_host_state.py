"""What containers get by the state of the host: the files that HCCL reads."""

import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.claims.node import DRIVER
from tests.holds.entries import held
from trio_npu_dra.claims.cdi import CdiFolder, Libraries
from trio_npu_dra.holds.entry import HeldDevice
from trio_npu_dra.host_path import KnownPaths
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import ChipFamily

ROOT_INFO = "/etc/hccl_rootinfo.json"
TOPOLOGY = "/usr/local/Ascend/driver/topo"
FAMILIES = (ChipFamily.ASCEND_910B, ChipFamily.ASCEND_910_A3, ChipFamily.ASCEND_950)


def device(number: int, family: ChipFamily) -> HeldDevice:
    """An NPU of a family."""
    one = held(f"npu-{number}", number)
    return replace(one, family=family, chips=(replace(one.chips[0], family=family),))


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
    for name in ("host/etc", f"host{TOPOLOGY}/950", "host/usr/lib64", "dev", "sys"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / f"host{TOPOLOGY}/950/atlas_950_1.json").touch()
    (tmp_path / "dev/davinci_manager").symlink_to(os.devnull)
    later = KnownPaths(now=lambda: time.time_ns() + 10**10)
    return Host(
        host_root=tmp_path / "host",
        dev_root=tmp_path / "dev",
        sysfs_root=tmp_path / "sys",
        known=later,
    )


def put(host: Host, path: str, text: str) -> None:
    """A file of the host."""
    (host.host_root / path.lstrip("/")).write_text(text)


def rendered(host: Host, *devices: HeldDevice) -> dict[str, Any]:
    """What a container gets with these NPUs, whichever of them it uses."""
    libraries = Libraries(path="")
    cdi = CdiFolder(root=Path("/etc/cdi"), driver_name=DRIVER, host=host, libraries=libraries)
    edits: Mapping[str, Any] = cdi.render("uid-a", devices)["containerEdits"]
    return dict(edits)


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


def test_a_root_info_that_does_not_fit_is_said_once(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """And again when it has changed and still does not."""
    caplog.set_level(logging.INFO)
    for content in (root_info(0), "{}"):
        put(host, ROOT_INFO, content)
        for number in (1, 2, 1):
            mounts(host, device(number, ChipFamily.ASCEND_950))
    assert [record.__dict__["problem"] for record in caplog.records] == [
        "rank_list has no device_id 1",
        "version: Field required",
    ]
