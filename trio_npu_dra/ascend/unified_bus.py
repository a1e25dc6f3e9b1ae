"""The user space and the topology of the unified bus (UB), which programs on a 950 need.

Huawei's container runtime mounts these files since August 2026 (mind-cluster, `ub_driver.list`).
They belong to the host's system, not to the Ascend driver, and lie beside other packages' files. So
a link counts only if it leads to a file of the same folder, and if link, file and folder have one
owner, which is root.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator
from typing import Final

from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.host_path import resolve
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.traits import TOPOLOGY_FOLDER, TRAITS

_LIBRARIES: Final = "/usr/lib64"
_LIBRARY_NAMES: Final = ("libummu", "liburma", "libnl")
_OTHERS: Final = (
    f"{_LIBRARIES}/urma",
    *(f"/usr/bin/urma_{name}" for name in ("admin", "perftest", "ping")),
)

# The Ascend driver's file by the main board of a card, and by the type of the super pod elsewhere
# (mind-cluster, HCCL_TOPO_FILE_PATH). Other cards have a topology that is not known here.
_CARDS: Final = range(0x60, 0x80)
_OF_CARD: Final = {0x68: "atlas_350_1", 0x6C: "atlas_350_3"}
_OF_SUPER_POD: Final = ("atlas_850_1", "atlas_950_1", "atlas_950_2", "atlas_850_2", "atlas_850_3")


def ub_files(host: Host) -> tuple[str, ...]:
    """The files and folders of the UB's user space that the host has; none without a UB."""
    if not (host.sysfs_root / "class/unified_bus").is_dir():
        return ()
    return tuple(_find(str(host.host_root)))


def topology_files(host: Host, family: ChipFamily) -> frozenset[str]:
    """The paths of the topologies of a family's boards that the host has."""
    names = (*_OF_CARD.values(), *_OF_SUPER_POD)
    folder = TRAITS[family].ub_topologies
    return host.existing(*(_topology_path(folder, name) for name in names if folder))


def topology_file(host: Host, chip: Chip) -> str | None:
    """The path of the topology that HCCL needs for a board with this chip, if the host has it."""
    path = _topology_path(TRAITS[chip.family].ub_topologies, _topology_name(chip))
    return path if path in topology_files(host, chip.family) else None


def _topology_path(folder: str, name: str | None) -> str:
    return f"{TOPOLOGY_FOLDER}/{folder}/{name}.json"


def _topology_name(chip: Chip) -> str | None:
    board, kind = chip.mainboard_id, chip.super_pod_type
    if board is None:
        return None
    if board in _CARDS:
        return _OF_CARD.get(board)
    return _OF_SUPER_POD[kind] if kind is not None and kind < len(_OF_SUPER_POD) else None


def _find(root: str) -> Iterator[str]:
    paths = [*_OTHERS]
    if folder := resolve(root, _LIBRARIES):
        names = sorted(os.listdir(folder))  # noqa: PTH208 - texts
        paths[:0] = [f"{_LIBRARIES}/{name}" for name in names if name.startswith(_LIBRARY_NAMES)]
    for path in paths:
        folder = resolve(root, posixpath.dirname(path))
        if folder is not None and _may_be_mounted(root, folder, path):
            yield path


def _may_be_mounted(root: str, folder: str, path: str) -> bool:
    place = resolve(root, path)
    if place is None or posixpath.dirname(place) != folder:
        return False
    try:
        named = os.lstat(f"{folder}/{posixpath.basename(path)}")
        found = os.lstat(place)
        owner = os.lstat(folder).st_uid
    except OSError:  # gone by now
        return False
    if stat.S_ISLNK(named.st_mode) and {named.st_uid, found.st_uid} != {owner}:
        return False
    if stat.S_ISDIR(found.st_mode):
        return path.startswith(_LIBRARIES)  # the others are programs
    return stat.S_ISREG(found.st_mode)
