"""All that differs by chip family: one table, which the rest of the package reads.

Sources: the DCMI reference and mind-cluster for what the library reports and for names; the base
lists of ascend-docker-runtime, and the files that its users add by hand, for what containers get.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from trio_npu_dra.ascend.dcmi.types import DieKind, Link
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.ascend.templates import SPLIT_310P, SPLIT_910, SPLITS_910B, SPLITS_A3, SplitTable

# The board tells an A3 from the first 910, whatever the names say (mind-cluster).
_A3_BOARDS: Final = frozenset({0xB0, 0xB1, 0xB2, 0xB3, 0xB4, 0x81, 0x83, 0xD1, 0xD3})
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

# A path with a slash at its end is a folder, one without is a file.
_LIBRARIES: Final = "/usr/local/Ascend/driver/lib64/"
_DRIVER_PATHS: Final = (
    _LIBRARIES,
    "/usr/local/Ascend/driver/include/",
    "/usr/local/Ascend/driver/tools/",
    "/usr/local/Ascend/driver/version.info",
    "/usr/local/dcmi/",
    "/usr/local/bin/npu-smi",
    "/usr/local/sbin/npu-smi",
    "/etc/ascend_install.info",
    "/etc/hccn.conf",
    "/var/queue_schedule/",
)
# 310B is a whole computer: parts of its Ascend driver are in the system's own folders. The same is
# true of the 200I SoC, a 310P.
_SYSTEM_PATHS: Final = ("/etc/hdcBasic.cfg", "/etc/sys_version.conf")
_500_LIBRARIES: Final = "/home/data/miniD/driver/lib64/"  # Atlas 500
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
    "/usr/lib64/aicpu_kernels/",
    "/var/slogd",
    "/var/dmp_daemon",
)

# Of each group one; a folder of /dev has a node. What Huawei's container runtime refuses to do
# without, and the libraries, without which no program opens an NPU.
_MANAGER: Final = ("/dev/davinci_manager",)
_NEEDS: Final = (_MANAGER, ("/dev/devmm_svm",), ("/dev/hisi_hdc",), (_LIBRARIES,))
# Atlas 200 and 200I SoC have svm0 instead, and their libraries may be the system's.
_NODES_OF_CARD_OR_SOC: Final = (
    _MANAGER,
    ("/dev/devmm_svm", "/dev/svm0"),
    ("/dev/hisi_hdc", "/dev/svm0"),
)


@dataclass(frozen=True, slots=True)
class Traits:
    """How chips of one family are recognised, read, split, named and given to containers.

    Attributes:
        chip_name: What DCMI's name for the chip begins with.
        resource: The resource of Huawei's device plugin, without the domain.
        npu_name: What its npu_name must begin with besides; None where that does not matter.
        boards: Kinds of boards that carry this family only, whatever the names.
        die_kind: The die whose id can be read.
        has_hbm: Whether its memory is HBM; otherwise it is DDR. A 910 has both, and its DDR is not
            the memory that a model gets.
        has_super_pods: Whether the Ascend driver reports a place in a super pod.
        dies_of_module: How many dies of a card the multi-die policy may tie together; 1 where
            there is no such policy.
        split_key: The fact of a chip that decides how it is split; None if all are split alike.
        splits: How chips are split, by that fact; empty if they cannot be.
        domain_links: The links that make an HCCS domain, or on a 950 what the UB joins; empty if
            links cannot be read.
        ring_size: How many chips of consecutive physical ids make a domain by the board's design,
            where the Ascend driver reports no links; None where there is no such rule.
        boards_without_hccs: Kinds of boards of the family that have no HCCS.
        shared_nodes: Names below `/dev` of the nodes that every container with an NPU gets,
            besides the manager; those that exist.
        node_folders: Folders below `/dev` of which it gets every node.
        has_docker_manager: Whether a second node of the manager is meant for containers.
        driver_paths: Files and folders of the Ascend driver that it gets; those that exist.
        needs: What it cannot do without, of each group one: names below `/dev`, where a folder
            stands for any node in it, and host files.
        reads_root_info: Whether its HCCL reads `/etc/hccl_rootinfo.json` (HCCL's documents).
        rank_table: The newest form of rank tables that its HCCL reads; None if there is no HCCL.
        uses_unified_bus: Whether it works over the host's unified bus (`ascend.unified_bus`).
        ub_topologies: Its folder of topologies for HCCL, below that of the Ascend driver.
        has_server_label: Whether a label has the server's index in the super pod.
        has_network_port: Whether its chips may have a port of their own to the network.
    """

    chip_name: re.Pattern[str]
    resource: str
    npu_name: re.Pattern[str] | None = None
    boards: frozenset[int] = frozenset()
    die_kind: DieKind = DieKind.VDIE
    has_hbm: bool = True
    has_super_pods: bool = False
    dies_of_module: int = 1
    split_key: Literal["board_id", "ai_cores"] | None = None
    splits: Mapping[int | None, SplitTable] = field(default_factory=dict)
    domain_links: frozenset[Link] = frozenset()
    ring_size: int | None = None
    boards_without_hccs: frozenset[int] = frozenset()
    shared_nodes: tuple[str, ...] = _USUAL_NODES
    node_folders: tuple[str, ...] = ()
    has_docker_manager: bool = False
    driver_paths: tuple[str, ...] = _DRIVER_PATHS
    needs: tuple[tuple[str, ...], ...] = _NEEDS
    reads_root_info: bool = False
    rank_table: Literal["1.0", "1.2", "2.0"] | None = None
    uses_unified_bus: bool = False
    ub_topologies: str = ""
    has_server_label: bool = False
    has_network_port: bool = True

    def has_hccs(self, board_id: int | None) -> bool:
        """Whether chips on that kind of board have HCCS links that can be read."""
        return Link.HCCS in self.domain_links and board_id not in self.boards_without_hccs


# In the order in which the families came out: a later row takes names that an earlier one has too.
TRAITS: Final[Mapping[ChipFamily, Traits]] = MappingProxyType(
    {
        ChipFamily.ASCEND_310: Traits(
            chip_name=re.compile(r".*310"),
            has_hbm=False,
            driver_paths=(*_DRIVER_PATHS, *_SYSTEM_PATHS, _500_LIBRARIES),
            needs=(*_NODES_OF_CARD_OR_SOC, (_LIBRARIES, _500_LIBRARIES)),
            resource="Ascend310",
            has_network_port=False,
        ),
        ChipFamily.ASCEND_310B: Traits(
            chip_name=re.compile(r".*310B"),
            has_hbm=False,
            shared_nodes=_310B_NODES,
            has_docker_manager=True,
            driver_paths=(*_DRIVER_PATHS, *_310B_PATHS),
            needs=(
                (*_MANAGER, "/dev/davinci_manager_docker"),
                (_LIBRARIES, "/usr/lib64/libdcmi.so"),
            ),
            resource="Ascend310",
            has_network_port=False,
        ),
        ChipFamily.ASCEND_310P: Traits(
            chip_name=re.compile(r"310P|I2"),
            has_hbm=False,
            splits={None: SPLIT_310P},
            shared_nodes=_310P_NODES,
            driver_paths=(*_DRIVER_PATHS, *_SYSTEM_PATHS),
            needs=(*_NODES_OF_CARD_OR_SOC, (_LIBRARIES, "/etc/sys_version.conf")),
            rank_table="1.0",
            resource="Ascend310P",
            has_network_port=False,
        ),
        ChipFamily.ASCEND_910: Traits(
            chip_name=re.compile(r"(Ascend)?910"),
            ring_size=4,
            splits={None: SPLIT_910},
            rank_table="1.0",
            resource="Ascend910",
        ),
        ChipFamily.ASCEND_910B: Traits(
            chip_name=re.compile(r"(910B|A2G)\d"),
            boards_without_hccs=_BOARDS_WITHOUT_HCCS,
            domain_links=frozenset({Link.HCCS, Link.HCCS_SWITCHED}),
            split_key="board_id",
            splits=SPLITS_910B,
            rank_table="1.0",
            resource="Ascend910",
        ),
        ChipFamily.ASCEND_910_A3: Traits(
            chip_name=re.compile(r"(Ascend)?910$"),  # as the first 910
            npu_name=re.compile(r"93\d\d"),
            boards=_A3_BOARDS,
            has_super_pods=True,
            dies_of_module=2,
            split_key="ai_cores",
            splits=SPLITS_A3,
            domain_links=frozenset({Link.HCCS, Link.HCCS_SWITCHED, Link.SIO}),
            node_folders=_UB_FOLDERS,
            driver_paths=(*_DRIVER_PATHS, f"{TOPOLOGY_FOLDER}/"),
            rank_table="1.2",
            resource="Ascend910",
        ),
        ChipFamily.ASCEND_950: Traits(
            chip_name=re.compile(r"(Ascend)?950"),
            die_kind=DieKind.DDIE,
            has_super_pods=True,
            domain_links=frozenset({Link.UB}),
            shared_nodes=("hisi_hdc",),
            node_folders=_UB_FOLDERS,
            driver_paths=(*_DRIVER_PATHS, f"{TOPOLOGY_FOLDER}/"),
            needs=(
                *(_MANAGER, ("/dev/hisi_hdc",), (_LIBRARIES,)),
                *((f"/dev/{folder}/",) for folder in _UB_FOLDERS),
            ),
            reads_root_info=True,
            rank_table="2.0",
            uses_unified_bus=True,
            ub_topologies="950",
            resource="npu",
            has_server_label=True,
        ),
    }
)


def family_of(
    chip_name: str, *, npu_name: str = "", board_id: int | None = None
) -> ChipFamily | None:
    """The chip's family, by the rules of mind-cluster's device manager (api/default_name.go).

    Args:
        chip_name: As DCMI prints it, such as `910B4` or `Ascend910`.
        npu_name: Such as `9392`; empty if the library does not know it.
        board_id: The board's kind; None if the library does not report it. An unanswered one
            must be read again: without it the family is a guess.

    Returns:
        None for an unknown chip.
    """
    for family, traits in reversed(tuple(TRAITS.items())):
        names_fit = traits.chip_name.match(chip_name) and (
            traits.npu_name is None or traits.npu_name.match(npu_name)
        )
        if names_fit or board_id in traits.boards:
            return family
    return None
