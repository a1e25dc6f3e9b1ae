"""The driver with `--label-node`, as docs/guides/placement.md says it."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from dev.cluster.deploy import ROOT
from dev.cluster.driver import DRIVER, Driver

GUIDE = (ROOT / "docs/guides/placement.md").read_text(encoding="utf-8")
FLAG = "NPU_DRA_LABEL_NODE"
MANIFESTS = [ROOT / f"k8s/node-labels/{name}.yaml" for name in ("rbac", "own-labels")]


def shown(beginning: str) -> str:
    """The block of the guide that begins so."""
    (block,) = re.findall(rf"^```\n({beginning}.+?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return str(block)


@contextmanager
def labelled(driver: Driver) -> Iterator[None]:
    """The driver labels its Nodes; afterwards none has such a label any more."""
    cluster = driver.cluster
    for path in MANIFESTS:
        cluster.kubectl("apply", "--filename", path)
    driver.set_environment(f"{FLAG}=true")
    yield
    driver.set_environment(f"{FLAG}-")
    for node in cluster.nodes:
        words = shlex.split(shown("kubectl apply --server-side").replace("NODE", node.name))
        cluster.kubectl(*words[1 : words.index("<<<")], stdin=words[-1])
        assert labels(dataclasses.replace(driver, node=node)) == {}
    for path in MANIFESTS:
        cluster.kubectl("delete", "--filename", path)


def labels(driver: Driver) -> dict[str, str]:
    """Those of the driver's Node that are about NPUs."""
    about = driver.cluster.get("node", driver.node.name) or {}
    return {
        key: value
        for key, value in about["metadata"]["labels"].items()
        if key.startswith((DRIVER, "huawei.com")) and key != f"{DRIVER}/simulator"
    }
