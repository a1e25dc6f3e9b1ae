"""What each chip generation does its own way: one table.

Sources: the DCMI reference and mind-cluster for what the library reports, the base lists of
ascend-docker-runtime, and the files that its users add by hand, for what containers get.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from trio_npu_dra.ascend.dcmi.types import DieKind, Link
from trio_npu_dra.ascend.model import ChipFamily

# 910B boards with PCIe only: 300T A2, 300I A2, and the 800I A2 without HCCS.
_BOARDS_WITHOUT_HCCS: Final = frozenset({0x10, 0x11, 0x12, 0x13, 0x28, 0x29, 0x33, 0x37, 0x3C})

_USUAL_NODES: Final = ("devmm_svm", "hisi_hdc", "dvpp_cmdlist")
_310B_NODES: Final = (
    *_USUAL_NODES,
    *("svm0", "ts_aisle", "upgrade", "sys", "vdec", "vpc", "pngd", "venc", "log_drv"),
    *("acodec", "ai", "ao", "vo", "hdmi"),
)
# Only the 200I SoC has those after the usual ones.
_310P_NODES: Final = (
    *_USUAL_NODES,
    *("vpc", "vdec", "sys", "spi_smbus", "user_config", "ts_aisle", "svm0", "log_drv"),
    *("memory_bandwidth", "upgrade", "event_sched", "xsmem_dev"),
)
_UB_FOLDERS: Final = ("uburma", "ummu")

_DRIVER_PATHS: Final = (
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/include",
    "/usr/local/Ascend/driver/tools",
    "/usr/local/Ascend/driver/version.info",
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/usr/local/sbin/npu-smi",
    "/etc/ascend_install.info",
    "/etc/hccn.conf",
    "/var/queue_schedule",
)
# 310B is a whole computer: parts of its Ascend driver are in the system's own folders. The same is
# true of the 200I SoC, a 310P.
_SYSTEM_PATHS: Final = ("/etc/hdcBasic.cfg", "/etc/sys_version.conf")
_310_PATHS: Final = (*_SYSTEM_PATHS, "/home/data/miniD/driver/lib64")  # Atlas 500
TOPOLOGY_FOLDER: Final = "/usr/local/Ascend/driver/topo"
"""How boards of A3 and 950 connect their chips; HCCL reads it."""
_310B_LIBRARIES: Final = (
    *("aicpu_processer", "aicpu_prof", "aicpu_sharder", "adump", "tsd_eventclient"),
    *("aicpu_scheduler", "dcmi", "mpi_dvpp_adapter", "stackcore", "mmpa", "drvdsmi"),
)
_310B_PATHS: Final = (
    *_SYSTEM_PATHS,
    *(f"/usr/lib64/lib{name}.so" for name in _310B_LIBRARIES),
    "/usr/lib64/libsemanage.so.2",
    "/usr/lib64/aicpu_kernels",
    "/var/slogd",
    "/var/dmp_daemon",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How chips of one family are read, handed out and given to containers.

    Attributes:
        die_kind: The die whose id can be read.
        has_hbm: Whether its memory is HBM; otherwise it is DDR. A 910 has both, and its DDR is not
            the memory that a model gets.
        has_super_pods: Whether the Ascend driver reports a place in a super pod.
        dies_of_module: How many dies of a card the multi-die policy may tie together; 1 where
            there is no such policy.
        domain_links: The links that make an HCCS domain, or on a 950 what the UB joins; empty if
            links cannot be read.
        ring_size: How many chips of consecutive physical ids make a domain by the board's design,
            where the Ascend driver reports no links; None where there is no such rule.
        has_hccs: Whether boards of this family link chips over HCCS.
        boards_without_hccs: Kinds of boards that do not, all the same.
        shared_nodes: Names below `/dev` of the nodes that every container with an NPU gets,
            besides the manager; those that exist.
        node_folders: Folders below `/dev` of which it gets every node.
        has_docker_manager: Whether a second node of the manager is meant for containers.
        driver_paths: Files and folders of the Ascend driver that it gets; those that exist.
        reads_root_info: Whether its HCCL reads `/etc/hccl_rootinfo.json` (HCCL's documents).
        needs_ub_files: Whether it works over the host's unified bus (`ascend.unified_bus`).
    """

    die_kind: DieKind = DieKind.VDIE
    has_hbm: bool = True
    has_super_pods: bool = False
    dies_of_module: int = 1
    domain_links: frozenset[Link] = frozenset()
    ring_size: int | None = None
    has_hccs: bool = False
    boards_without_hccs: frozenset[int] = frozenset()
    shared_nodes: tuple[str, ...] = _USUAL_NODES
    node_folders: tuple[str, ...] = ()
    has_docker_manager: bool = False
    driver_paths: tuple[str, ...] = _DRIVER_PATHS
    reads_root_info: bool = False
    needs_ub_files: bool = False


TRAITS: Final[Mapping[ChipFamily, Traits]] = MappingProxyType(
    {
        ChipFamily.ASCEND_310: Traits(has_hbm=False, driver_paths=(*_DRIVER_PATHS, *_310_PATHS)),
        ChipFamily.ASCEND_310B: Traits(
            has_hbm=False,
            shared_nodes=_310B_NODES,
            has_docker_manager=True,
            driver_paths=(*_DRIVER_PATHS, *_310B_PATHS),
        ),
        ChipFamily.ASCEND_310P: Traits(
            has_hbm=False,
            shared_nodes=_310P_NODES,
            driver_paths=(*_DRIVER_PATHS, *_SYSTEM_PATHS),
        ),
        ChipFamily.ASCEND_910: Traits(has_hccs=True, ring_size=4),
        ChipFamily.ASCEND_910B: Traits(
            has_hccs=True,
            boards_without_hccs=_BOARDS_WITHOUT_HCCS,
            domain_links=frozenset({Link.HCCS, Link.HCCS_SWITCHED}),
        ),
        ChipFamily.ASCEND_910_A3: Traits(
            has_super_pods=True,
            dies_of_module=2,
            has_hccs=True,
            domain_links=frozenset({Link.HCCS, Link.HCCS_SWITCHED, Link.SIO}),
            node_folders=_UB_FOLDERS,
            driver_paths=(*_DRIVER_PATHS, TOPOLOGY_FOLDER),
        ),
        ChipFamily.ASCEND_950: Traits(
            die_kind=DieKind.DDIE,
            has_super_pods=True,
            domain_links=frozenset({Link.UB}),
            shared_nodes=("hisi_hdc",),
            node_folders=_UB_FOLDERS,
            driver_paths=(*_DRIVER_PATHS, TOPOLOGY_FOLDER),
            reads_root_info=True,
            needs_ub_files=True,
        ),
    }
)
