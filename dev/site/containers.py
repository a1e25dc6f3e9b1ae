"""The tables of docs/reference/containers.md: what the code gives to containers, by family.

`just generated` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from dev.site.markdown import with_table
from dev.site.stage import ROOT
from trio_npu_dra.ascend.host import MANAGER
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.ascend.root_info import ROOT_INFO
from trio_npu_dra.ascend.traits import TRAITS, Traits

_NODES_HEAD: Final = "| family | device nodes in `/dev` |"
_FILES_HEAD: Final = "| family | files and folders, read-only; variables |"
_PRODUCTS: Final[Mapping[ChipFamily, str]] = {
    ChipFamily.ASCEND_310: "Atlas 300I 3010, Atlas 500",
    ChipFamily.ASCEND_310B: "Atlas 200I A2",
    ChipFamily.ASCEND_310P: "Atlas 300I Pro, 300V, 300I Duo",
    ChipFamily.ASCEND_910: "910A",
    ChipFamily.ASCEND_910B: "Atlas A2",
    ChipFamily.ASCEND_910_A3: "910C, Atlas A3",
    ChipFamily.ASCEND_950: "950PR, 950DT",
}


def page() -> str:
    """docs/reference/containers.md with its tables as they are now."""
    text = (ROOT / "docs/reference/containers.md").read_text(encoding="utf-8")
    text = with_table(text, _NODES_HEAD, _rows(_nodes))
    return with_table(text, _FILES_HEAD, _rows(_files))


def _rows(given: Callable[[Traits], list[str]]) -> Iterator[str]:
    """A row for what all families have in common, and one for what each has besides."""
    by_family = {family: given(traits) for family, traits in TRAITS.items()}
    first, *others = by_family.values()
    common = [each for each in first if all(each in other for other in others)]
    yield f"| every family | {', '.join(common)} |"
    for family, own in by_family.items():
        besides = ", ".join(each for each in own if each not in common)
        yield f"| `{family}` ({_PRODUCTS[family]}) | {besides or 'nothing besides'} |"


def _nodes(traits: Traits) -> list[str]:
    nodes = ["`davinciN` of each NPU"]
    nodes += [f"`{name}`" for name in (MANAGER, *traits.shared_nodes)]
    nodes += [f"all in `{folder}`" for folder in traits.node_folders]
    if traits.has_docker_manager:
        nodes.append(f"as `{MANAGER}` the node's `{MANAGER}_docker`")
    return nodes


def _files(traits: Traits) -> list[str]:
    files = [f"`{path}`" for path in traits.driver_paths]
    if traits.reads_root_info:
        files.append(f"[`{ROOT_INFO}`](#ascend-950)")
    if traits.uses_unified_bus:
        files.append("the user space of [the unified bus](#ascend-950)")
    if traits.ub_topologies:
        files.append("[`HCCL_TOPO_FILE_PATH`](#ascend-950)")
    return [*files, "`ASCEND_VISIBLE_DEVICES=void`"]
