"""The pages about rank tables show what is written, and name every field of the documents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.ranktable.hccl import load
from tests.ranktable.jobs import A2, Job, module, npu, pod
from tests.ranktable.test_tables import OLD, TWO_DUOS, TWO_SERVERS, TWO_SUPER_PODS, UB, made
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
OPERATOR: Final = json.loads(Path(__file__).with_name("operator.json").read_text(encoding="utf-8"))
"""What ascend-operator's generator printed, at 22bb3d987bc0 of Ascend/mind-cluster, run on pods
with the annotations that its device plugin gives pods with these NPUs."""


def values(part: Any, within: str = "") -> Iterator[tuple[str, Any]]:
    """The fields that a table has; levels are a value, taken over as a whole."""
    if isinstance(part, list) and not within.endswith("level_list."):
        for one in part:
            yield from values(one, within)
    elif isinstance(part, dict):
        for name, value in part.items():
            yield from values(value, f"{within}{name}.")
    else:
        yield within[:-1], part


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """What the page says of each field: what it has here, and of the operator."""
    section = REFERENCE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(
        r"^\| `([\w.]+)` \| [^|]* \| ([^|]*) \| ?([^|]*?) ?\|$", section, re.MULTILINE
    )
    return {name: (here, of_operator) for name, here, of_operator in found}


@pytest.mark.parametrize(
    ("heading", "tables"),
    [("Forms 1.0 and 1.2", (made(TWO_SERVERS), made(TWO_SUPER_PODS))), ("Form 2.0", (made(UB),))],
)
def test_every_field_has_a_row(heading: str, tables: tuple[Any, ...]) -> None:
    """All that Huawei's documents know, and which of these are written."""
    said = {name: here for name, (here, _) in rows(heading).items()}
    assert said.keys() >= DOCUMENTED[heading]
    written = {name for name, here in said.items() if not here.startswith("not written")}
    assert written == {name for table in tables for name, _ in values(table)}


@pytest.mark.parametrize(
    ("kind", "job", "heading"),
    [
        ("910", OLD, "Forms 1.0 and 1.2"),
        ("300i_duo", TWO_DUOS, "Forms 1.0 and 1.2"),
        ("a2", TWO_SERVERS, "Forms 1.0 and 1.2"),
        ("a3", TWO_SUPER_PODS, "Forms 1.0 and 1.2"),
        ("a5", UB, "Form 2.0"),
    ],
)
def test_a_difference_to_the_operators_table_is_told(kind: str, job: Job, heading: str) -> None:
    """In the row of its field; where a row says nothing of the operator, both write the same."""
    told = {name: of_operator for name, (_, of_operator) in rows(heading).items()}
    ours, theirs = list(values(made(job))), list(values(OPERATOR[kind]))
    assert all(told[name] != "not written" for name, _ in theirs)
    for name, difference in told.items():
        if not difference:
            assert [one for one in ours if one[0] == name] == [
                one for one in theirs if one[0] == name
            ]


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
