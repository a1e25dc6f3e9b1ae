"""Asks a real API server with our policy about each config: `python -m dev.config`.

Beside it is the message of the driver, to which tests/config holds it. The exit status is 1 if the
server takes what the driver refuses, refuses what it takes, or does not name the field; an
argument chooses the Kubernetes version.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from dev.cluster.api import ApiServer, Object
from dev.cluster.control_plane import ControlPlane
from dev.cluster.processes import ClusterError, wait_until
from dev.cluster.releases import DEFAULT
from dev.config.cases import CASES

POLICY = Path(__file__).parents[2] / "k8s/base/npu-config.yaml"
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


def judged(parameters: Any, server: ApiServer) -> str:
    """The words in which the API server refuses the claim."""
    try:
        server.create(manifest(parameters), dry_run=True)
    except ClusterError as refusal:
        said = str(refusal)
        return said.partition(DENIED)[2] or said
    return ""


@contextmanager
def api_server(version: str, folder: Path) -> Iterator[ApiServer]:
    """An API server of that version, on which our policy has effect."""
    plane = ControlPlane.start(
        version=version,
        folder=folder / "plane",
        logs=folder,
    )
    try:
        plane.api.apply(yaml.safe_load_all(POLICY.read_text(encoding="utf-8")))
        wait_until(lambda: judged({}, plane.api), "the policy with effect", timeout=30)
        yield plane.api
    finally:
        plane.stop()


def main(version: str) -> int:
    """Print the table; returns 1 if a verdict is wrong."""
    differing = 0
    with tempfile.TemporaryDirectory() as name, api_server(version, Path(name)) as server:
        for kind, case in CASES.items():
            said = judged(case.parameters, server)
            is_right = case.is_named(said) if case.words else not said
            differing += not is_right
            print(f"\n{kind}{'' if is_right else ': THEY DIFFER'}")
            print(f"  driver:            {'; '.join(case.words) or '(taken)'}")
            print(f"  API server {version}: {said or '(taken)'}")
    print(f"\nconfigs: {len(CASES)}, judged differently: {differing}")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:] or [DEFAULT]))
