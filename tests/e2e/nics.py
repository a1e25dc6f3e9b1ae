"""A small driver of NICs, for claims that ask two drivers: it publishes, and prepares nothing.

Its process runs beside the tests and has its sockets on the node, where the kubelet finds them like
those of any DRA driver.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio

from dev.cluster.api import Object
from dev.cluster.cluster import Cluster, NodeAccess
from tests.e2e.space import device_class
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import listen_unix
from trio_npu_dra.kit.grpc import serve as serve_calls
from trio_npu_dra.kit.kubelet import dra_plugin
from trio_npu_dra.kit.kubelet.driver import ClaimRef, PrepareResult
from trio_npu_dra.kit.kubelet.registration import NOT_REGISTERED, routes

NAME = "nic.example.com"
"""The name of the driver and of its DeviceClass."""
KUBELET = Path("/var/lib/kubelet")
SERVICE = KUBELET / "plugins" / NAME / "dra.sock"
REGISTRATION = KUBELET / "plugins_registry" / f"{NAME}-reg.sock"
REGISTERED = "registered"


class Nics:
    """Containers get a NIC by other means, so that there is nothing to do for a claim."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """All is well."""
        return {claim.uid: PrepareResult() for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """All is well."""
        return {claim.uid: "" for claim in claims}


@contextmanager
def running(cluster: Cluster, node: NodeAccess, roots: Mapping[str, str]) -> Iterator[None]:
    """The driver runs, is registered and has published; afterwards nothing of it is left.

    Args:
        cluster: Where its class and its slice are.
        node: Where its NICs are.
        roots: The PCIe root of each NIC, by the NIC's name.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.nics", str(node.root)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == REGISTERED
            ours = device_class(NAME, f'device.driver == "{NAME}"')
            cluster.api.apply([ours, _slice(node.name, roots)])
            yield
        finally:
            cluster.remove("resourceslice", f"{node.name}-nics")
            cluster.remove("deviceclass", NAME)
            process.terminate()
            process.wait(timeout=20)
            node.execute("rm", "-rf", SERVICE.parent, REGISTRATION)


def _slice(node: str, roots: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-nics"},
        "spec": {
            "driver": NAME,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": name,
                    "attributes": {"resource.kubernetes.io/pcieRoot": {"string": root}},
                }
                for name, root in roots.items()
            ],
        },
    }


async def serve(root: Path) -> None:
    """Be the driver on the node whose / is *root*, until the process is ended."""
    status = Observable(NOT_REGISTERED)
    service, registration = (root / path.relative_to("/") for path in (SERVICE, REGISTRATION))
    service.parent.mkdir()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_calls, listen_unix(service), dra_plugin.routes(Nics()))
        finding = routes(NAME, SERVICE, status)
        nursery.start_soon(serve_calls, listen_unix(registration), finding)
        with trio.fail_after(60):
            await status.wait_until(lambda now: now.registered)
        print(REGISTERED, flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    trio.run(serve, parser.parse_args().root)
