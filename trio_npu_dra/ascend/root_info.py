"""`/etc/hccl_rootinfo.json`: how the chips of a node reach each other, as HCCL reads it on a 950.

Tools of Huawei's write it; where it is missing, HCCL asks libtopoaddrinfo.so instead. One of an
earlier generation or of other chips ends every job of several chips (EI0014, EI0016). So a
container gets it only if it fits all its chips. HCCL of other generations does not read it.
"""

import logging
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ValidationError

from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.host_path import read_file, resolve
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.ascend.traits import TOPOLOGY_FOLDER, TRAITS
from trio_npu_dra.kit.base.errors import StorageError

log = logging.getLogger(__name__)

ROOT_INFO: Final = "/etc/hccl_rootinfo.json"
_VERSION: Final = "2.0"  # 1.0 is that of 910B, 1.2 of A3
_SIZE_LIMIT: Final = 4 << 20  # bytes; 64 chips with 8 levels of 24 addresses each take some 2 MB


Levels: TypeAlias = Mapping[int, tuple[Any, ...]]
"""The `level_list` of each chip, by its physical id: how others reach it, level by level."""

NO_LEVELS: Final[Levels] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class RootInfo:
    """The content of the file.

    Attributes:
        levels: Of the chips that it describes.
        topology: The path of the topology file that it names.
        problem: Why no container can use it; empty if some can.
    """

    levels: Levels = field(default_factory=lambda: NO_LEVELS)  # Python 3.11 wants a function
    topology: str = ""
    problem: str = ""

    def problem_for(self, physical_ids: Iterable[int]) -> str:
        """Why a container with these chips cannot use it; empty if it can."""
        missing = sorted(set(physical_ids) - self.levels.keys())
        if self.problem or not missing:
            return self.problem
        return f"rank_list has no device_id {', '.join(map(str, missing))}"


def read_root_info(host: Host) -> RootInfo | None:
    """The file of a host; None if there is none."""
    root = str(host.host_root)
    try:
        content = read_file(root, ROOT_INFO, limit=_SIZE_LIMIT)
    except StorageError as error:
        return RootInfo(problem=str(error))
    if content is None:
        return None
    found = _parsed(content)
    if not found.problem and resolve(root, found.topology) is None:
        return replace(found, problem=f"topo_file_path is no file in {TOPOLOGY_FOLDER}")
    return found


def read_levels(host: Host, chips: Iterable[Chip]) -> Levels:
    """The levels of a node's chips that HCCL reads; none from a file that it cannot use."""
    if not any(TRAITS[chip.family].reads_root_info for chip in chips):
        return NO_LEVELS
    found = read_root_info(host)
    return found.levels if found is not None and not found.problem else NO_LEVELS


def gives_root_info(host: Host, physical_ids: Iterable[int]) -> bool:
    """Whether a container with these chips of a 950 gets the file; the log says why not, once."""
    found = read_root_info(host)
    if found is None:
        return False
    problem = found.problem_for(physical_ids)
    if problem and problem not in host.said:
        host.said.add(problem)
        log.warning(
            "containers do not get the root info of HCCL, which does not fit their NPUs",
            extra={"path": ROOT_INFO, "problem": problem},
        )
    return not problem


class _Rank(BaseModel, defer_build=True):
    device_id: int
    level_list: tuple[Any, ...] = ()


class _AnyVersion(BaseModel, defer_build=True):
    version: str


class _RankTable(BaseModel, defer_build=True):
    topo_file_path: str
    rank_list: tuple[_Rank, ...]


@lru_cache(maxsize=1)  # a prepare and each repair read it: up to 4 MB of JSON
def _parsed(content: bytes) -> RootInfo:
    try:
        version = _AnyVersion.model_validate_json(content, strict=True).version
        if version != _VERSION:
            return RootInfo(problem=f"version is {version[:20]!r}, not {_VERSION!r}")
        table = _RankTable.model_validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return RootInfo(problem=": ".join(filter(None, (where, first["msg"]))))
    topology = posixpath.normpath(table.topo_file_path)
    if not topology.startswith(f"{TOPOLOGY_FOLDER}/"):
        return RootInfo(problem=f"topo_file_path is no file in {TOPOLOGY_FOLDER}")
    return RootInfo(
        levels={rank.device_id: rank.level_list for rank in table.rank_list}, topology=topology
    )
