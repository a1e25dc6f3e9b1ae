"""The table of docs/reference/containers.md: what the code gives to containers, by family.

`just generated` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dev.site.markdown import with_table
from dev.site.stage import ROOT
from trio_npu_dra.ascend.host import MANAGER
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.ascend.root_info import ROOT_INFO
from trio_npu_dra.ascend.traits import TRAITS, Traits

_HEAD: Final = "| family | device nodes in `/dev` | files and folders, read-only | variables |"
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
    """docs/reference/containers.md with its table as it is now."""
    text = (ROOT / "docs/reference/containers.md").read_text(encoding="utf-8")
    return with_table(text, _HEAD, _rows())


def _rows() -> Iterator[str]:
    """A row for what all families have in common, and one for what each has besides."""
    given = {family: _given(traits) for family, traits in TRAITS.items()}
    common = [
        [each for each in columns[0] if all(each in others for others in columns)]
        for columns in zip(*given.values(), strict=True)
    ]
    yield _row("every family", common)
    for family, columns in given.items():
        own = [
            [each for each in column if each not in shared]
            for column, shared in zip(columns, common, strict=True)
        ]
        yield _row(f"`{family}` ({_PRODUCTS[family]})", own)


def _given(traits: Traits) -> tuple[list[str], list[str], list[str]]:
    """Device nodes, files and variables of a family, as its cells have them."""
    nodes = ["`davinciN` of each NPU"]
    nodes += [f"`{name}`" for name in (MANAGER, *traits.shared_nodes)]
    nodes += [f"all in `{folder}`" for folder in traits.node_folders]
    if traits.has_docker_manager:
        nodes.append(f"as `{MANAGER}` the node's `{MANAGER}_docker`")
    files = [f"`{path}`" for path in traits.driver_paths]
    if traits.reads_root_info:
        files.append(f"[`{ROOT_INFO}`](#ascend-950), if it fits")
    if traits.uses_unified_bus:
        files.append("the user space of [the unified bus](#ascend-950)")
    variables = ["`ASCEND_VISIBLE_DEVICES=void`"]
    if traits.ub_topologies:
        variables.append("[`HCCL_TOPO_FILE_PATH`](#ascend-950)")
    return nodes, files, variables


def _row(name: str, columns: list[list[str]]) -> str:
    return f"| {name} | {' | '.join(', '.join(column) or '-' for column in columns)} |"
