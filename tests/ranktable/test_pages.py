"""The pages about rank tables show what is written, and name every field of the documents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.ranktable.hccl import load
from tests.ranktable.jobs import A2, module, npu, pod
from tests.ranktable.test_tables import TWO_SERVERS, TWO_SUPER_PODS, UB, made
from trio_npu_dra.kit.api.pods import PlacedPod

if TYPE_CHECKING:
    from tests.ranktable.conftest import Cluster

DOCS: Final = Path(__file__).parents[2] / "docs"
REFERENCE: Final = (DOCS / "reference/ranktable.md").read_text(encoding="utf-8")
GUIDE: Final = (DOCS / "guides/ranktable.md").read_text(encoding="utf-8")
_DEVICE: Final = (
    *("device_id", "device_ip", "device_port", "host_port", "rank_id"),
    *("super_device_id", "backup_device_ip", "backup_device_port"),
)
_RANK: Final = ("rank_id", "local_id", "device_id", "device_port", "host_port", "level_list")
DOCUMENTED: Final = {
    "Forms 1.0 and 1.2": {
        *("status", "version", "server_count", "server_list.server_id", "server_list.host_ip"),
        *(f"server_list.device.{field}" for field in _DEVICE),
        *("super_pod_list.super_pod_id", "super_pod_list.server_list.server_id"),
    },
    "Form 2.0": {"status", "version", "rank_count", *(f"rank_list.{field}" for field in _RANK)},
}
"""The fields of rank_table_config_{910,a2,a3,300i_duo}.md, and of rank_table_config_a5.md."""


def fields(part: Any, within: str = "") -> Iterator[str]:
    """The fields that a table has; levels are a value, taken over as a whole."""
    if isinstance(part, list) and not within.endswith("level_list."):
        for one in part:
            yield from fields(one, within)
    elif isinstance(part, dict):
        for name, value in part.items():
            yield from fields(value, f"{within}{name}.")
    else:
        yield within[:-1]


@pytest.mark.parametrize(
    ("heading", "tables"),
    [("Forms 1.0 and 1.2", (made(TWO_SERVERS), made(TWO_SUPER_PODS))), ("Form 2.0", (made(UB),))],
)
def test_every_field_has_a_row(heading: str, tables: tuple[Any, ...]) -> None:
    """All that Huawei's documents know, and which of these are written."""
    section = REFERENCE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| [^|]* \| ([^|]*) \|", section, re.MULTILINE))
    assert rows.keys() >= DOCUMENTED[heading]
    written = {name for name, here in rows.items() if not here.startswith("not written")}
    assert written == {name for table in tables for name in fields(table)}


def test_the_tables_of_the_page() -> None:
    """Ours is made of the pods of the other one, and HCCL takes it."""
    ours, theirs = map(json.loads, re.findall(r"```json\n(.*?)```", REFERENCE, re.DOTALL))
    nodes = ("node-1", "node-2", "node-1")
    job = [
        (
            pod(f"train-{at}", node, index=at),
            [npu(int(one["device_id"]), ips=[f"{one['device_ip']}/24"]) for one in given["device"]],
        )
        for at, (node, given) in enumerate(zip(nodes, theirs["server_list"], strict=True))
    ]
    assert made(job) == ours
    load(json.dumps(ours), A2)


async def test_the_outputs_of_the_guide(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job that lacks a pod, of one that is whole, and of its variables."""
    shown = dict(re.findall(r"```console\n\$ npu-dra ranktable (.*?)\n(.*?)```", GUIDE, re.DOTALL))
    monkeypatch.setenv("POD_NAME", "train-0-x7k2p")
    cluster.add(pod("train-0-x7k2p", None, index=0))
    _, _, err = await cluster.run("job/train")
    assert err == shown.pop("job/train")

    cluster.state.remove(PlacedPod, "train-0-x7k2p", "train")
    for at, name in enumerate(("train-0-x7k2p", "train-1-p9v4d")):
        cards = [module(first, super_pod=7, sdid=16 * at) for first in (0, 2)]
        cluster.add(pod(name, f"node-{at + 1}", index=at), *cards)
    _, _, err = await cluster.run("job/train", "--explain")
    assert err == shown.pop("job/train --explain >hccl.json")
    _, out, _ = await cluster.run("job/train", "-o", "env")
    assert out == shown.pop("job/train -o env")
    assert not shown
