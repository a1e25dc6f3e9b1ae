"""The driver's service account, with the rights and the admission policies of k8s/base."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dev.benchmarks.api import Api
from dev.cluster.control_plane import ControlPlane
from dev.cluster.network import SERVER_PORT

ROOT: Final = Path(__file__).parents[2]
NAMESPACE: Final = "ascend-dra"
ACCOUNT: Final = "ascend-npu-dra-kubeletplugin"
USER: Final = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
"""The driver in the audit log."""
_MANIFESTS: Final = ("namespace", "rbac", "own-node-only", "claim-status")


def admit(plane: ControlPlane) -> None:
    """Make the account, and give it its rights."""
    for name in _MANIFESTS:
        plane.kubectl("apply", "--filename", ROOT / f"k8s/base/{name}.yaml")


def mount(plane: ControlPlane, api: Api, folder: Path, *, node: str) -> None:
    """Make a Node, and in a new folder the files that its kubelet mounts into the driver's pod."""
    folder.mkdir(parents=True)
    (folder / "ca.crt").write_bytes(plane.ca.read_bytes())
    (folder / "token").write_text(api.create_token(node, NAMESPACE, ACCOUNT))


def environment(plane: ControlPlane, port: int = SERVER_PORT) -> Mapping[str, str]:
    """The variables by which a pod finds the API server."""
    return {"KUBERNETES_SERVICE_HOST": plane.address, "KUBERNETES_SERVICE_PORT": str(port)}
