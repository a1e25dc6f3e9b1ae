"""What three places say to each wrong config, side by side: `python -m tests.config_table`.

They are `npu-dra validate`, a real API server with our policy, and the driver's prepare. The exit
status is 1 if they differ; an argument chooses the Kubernetes version.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import trio
import yaml

from tests.claims.node import AT_ONCE, NodeOnDisk, claim, config, ref, result
from tests.cluster.api import ApiServer, Object
from tests.cluster.binaries import kubernetes
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import ClusterError, wait_until
from tests.cluster.releases import DEFAULT, RELEASES
from tests.config_cases import WRONG
from trio_npu_dra.cli.main import main as npu_dra

POLICY = Path(__file__).parent.parent / "k8s/base/npu-config.yaml"
DENIED = "denied request: "


def manifest(parameters: Any) -> Object:
    """A claim with that config."""
    request = {"name": "npu", "exactly": {"deviceClassName": "npu.huawei.com"}}
    opaque = {"driver": "npu.huawei.com", "parameters": parameters}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "npu"},
        "spec": {"devices": {"requests": [request], "config": [{"opaque": opaque}]}},
    }


def validated(parameters: Any, folder: Path) -> str:
    """What `npu-dra validate` prints, without lines; it tells each problem by itself, and all."""
    file = folder / "claim.yaml"
    file.write_text(json.dumps(manifest(parameters)))
    with redirect_stdout(io.StringIO()) as printed:
        status = npu_dra(["validate", str(file)])
    lines = [line.split(": ", 2)[1:] for line in printed.getvalue().splitlines()[:-1]]
    assert status == bool(lines)
    told = [text for _, text in lines[:3]] + [f"and {len(lines) - 3} more"] * (len(lines) > 3)
    return f"{lines[0][0]}: {'; '.join(told)}" if lines else ""


def judged(parameters: Any, server: ApiServer) -> str:
    """The words in which the API server refuses the claim."""
    try:
        server.create(manifest(parameters), dry_run=True)
    except ClusterError as refusal:
        said = str(refusal)
        return said.partition(DENIED)[2] or said
    return ""


def prepared(parameters: Any, folder: Path) -> str:
    """The words in which the driver refuses it, on a node of this process."""
    node = NodeOnDisk(folder / "node")
    node.source.store(claim("a", result("npu-0"), config=[config("FromClaim", parameters)]))
    return trio.run(node.start(patience=AT_ONCE).prepare, [ref("a")])["uid-a"].error


@contextmanager
def api_server(version: str, folder: Path) -> Iterator[ApiServer]:
    """An API server of that version, on which our policy has effect."""
    plane = ControlPlane.start(
        programs=kubernetes(version).ready(),
        folder=folder / "plane",
        logs=folder,
        gates=RELEASES[version].gates,
    )
    try:
        plane.api.apply(yaml.safe_load_all(POLICY.read_text(encoding="utf-8")))
        wait_until(lambda: judged({}, plane.api), "the policy with effect", timeout=30)
        yield plane.api
    finally:
        plane.stop()


def main(version: str) -> int:
    """Print the table; returns 1 if a message differs."""
    differing = 0
    logging.disable()  # the driver's own lines
    with tempfile.TemporaryDirectory() as name, api_server(version, Path(name)) as server:
        for kind, case in WRONG.items():
            said = {
                "validate": validated(case.parameters, Path(name)),
                f"API server {version}": judged(case.parameters, server),
                "prepare": prepared(case.parameters, Path(name)),
            }
            is_equal = set(said.values()) == {case.refusal("ResourceClaim")}
            differing += not is_equal
            print(f"\n{kind}{'' if is_equal else ': THEY DIFFER'}")
            for where, words in said.items():
                print(f"  {where:<18} {words or '(taken)'}")
    print(f"\nwrong configs: {len(WRONG)}, refused in differing words: {differing}")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:] or [DEFAULT]))
