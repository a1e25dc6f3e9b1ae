"""A node on which the whole daemon runs: folders, board, API server; real sockets, no kubelet."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import trio

from dev.rig.looking import SERVER
from dev.rig.waiting import until
from trio_npu_dra.agent import daemon
from trio_npu_dra.agent.flags import environment_variable
from trio_npu_dra.agent.settings import Settings
from trio_npu_dra.kit.api.objects import (
    Allocation,
    AllocationResult,
    Consumer,
    DeviceAllocation,
    Node,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from trio_npu_dra.kit.kubelet.endpoints import Endpoints
from trio_npu_dra.lab.simulator import Profile, SimulatedBoard, create_board
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState
from trio_npu_dra.lab.standins.device_manager import DeviceManager, open_device_manager
from trio_npu_dra.lab.standins.kubelet import Kubelet, open_kubelet

NODE = "node-a"
DRIVER = "npu.huawei.com"


def kubeconfig(api_socket: Path) -> str:
    """A kubeconfig for the API server behind a socket."""
    return json.dumps(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"unix://{api_socket}"}}],
            "users": [{"name": "u", "user": {}}],
        }
    )


@dataclass
class Rig:
    """A node: folders, board, and its API server."""

    folder: Path
    board: SimulatedBoard
    api: ApiState = field(default_factory=ApiState)
    http_port: int = -1
    npu_metrics: bool = True
    health_poll_interval: float = 0.1
    device_plugin: str = ""
    label_node: bool = False
    claim_status: bool = True
    device_plugin_shares: int = 1
    sharing: Literal["none", "shares"] = "none"
    partitioning: Literal["none", "dynamic"] = "none"

    def lay_out(self) -> None:
        """Make the kubelet's folders and a kubeconfig, as on a node before the daemon starts."""
        for name in ("registry", "plugins", "device-plugins", "pod-resources"):
            (self.folder / name).mkdir()
        self.kubeconfig.write_text(kubeconfig(self.api_socket))

    @asynccontextmanager
    async def served_api(self) -> AsyncIterator[None]:
        """Serve the API server while inside."""
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_api, self.api, self.api_socket)
            yield
            nursery.cancel_scope.cancel()

    @property
    def api_socket(self) -> Path:
        """The socket of the API server."""
        return self.folder / "api.sock"

    @property
    def kubeconfig(self) -> Path:
        """How the daemon finds the API server."""
        return self.folder / "kubeconfig"

    @property
    def settings(self) -> Settings:
        """The daemon's settings, with all paths below the folder."""
        return Settings(
            node_name=NODE,
            host_root=self.board.root,
            dev_root=self.board.dev_root,
            sysfs_root=self.board.sysfs_root,
            kubelet_registrar_directory_path=self.folder / "registry",
            kubelet_plugins_directory_path=self.folder / "plugins",
            kubelet_device_plugins_directory_path=self.folder / "device-plugins",
            kubelet_pod_resources_directory_path=self.folder / "pod-resources",
            device_plugin=self.device_plugin,
            label_node=self.label_node,
            claim_status=self.claim_status,
            device_plugin_shares=self.device_plugin_shares,
            cdi_root=self.folder / "cdi",
            kubeconfig=self.kubeconfig,
            http_port=self.http_port,
            npu_metrics=self.npu_metrics,
            health_poll_interval=self.health_poll_interval,
            sharing=self.sharing,
            partitioning=self.partitioning,
        )

    def environment(self, **changes: object) -> dict[str, str]:
        """The same as environment variables, for a daemon in its own process, with *changes*."""
        settings = self.settings.model_dump(exclude_none=True) | changes
        return {environment_variable(name): str(value) for name, value in settings.items()}

    @property
    def registration(self) -> Path:
        """Where the kubelet finds the daemon."""
        return self.endpoints().registration

    def endpoints(self, pod_uid: str | None = None) -> Endpoints:
        """The sockets of an instance."""
        return Endpoints(
            driver_name=DRIVER,
            plugin_directory=self.settings.plugin_directory,
            registrar_directory=self.settings.kubelet_registrar_directory_path,
            pod_uid=pod_uid,
        )

    @property
    def cdi_files(self) -> list[Path]:
        """The CDI files that the container runtime would find."""
        return sorted((self.folder / "cdi").glob("*.json"))

    @property
    def records(self) -> list[Path]:
        """The records that the daemon would find after a crash."""
        return sorted((self.folder / "plugins" / DRIVER / "claims").glob("*.json"))

    def claim(
        self,
        name: str,
        *devices: str,
        pods: Sequence[str] = (),
        share_id: str | None = None,
    ) -> Claim:
        """An allocated claim in the API server for *pods*, in the form that the kubelet names."""
        results = tuple(
            AllocationResult(
                request="npu", driver=DRIVER, pool=NODE, device=device, share_id=share_id
            )
            for device in devices
        )
        users = tuple(Consumer(resource="pods", name=pod, uid=pod) for pod in pods)
        stored = self.api.add(
            ResourceClaim(
                metadata=ObjectMeta(name=name, namespace="default"),
                status=ResourceClaimStatus(
                    allocation=Allocation(devices=DeviceAllocation(results=results)),
                    reserved_for=users,
                ),
            )
        )
        return Claim(namespace="default", uid=stored.metadata.uid or "", name=name)

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[trio.Nursery]:
        """Start the daemon; it is cancelled at the end if it still runs."""
        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.run, self.settings)
            yield nursery
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def device_manager(self) -> AsyncIterator[DeviceManager]:
        """Start what a kubelet has for device plugins."""
        folders = (self.folder / "device-plugins", self.folder / "pod-resources")
        async with open_device_manager(*folders) as manager:
            yield manager

    @asynccontextmanager
    async def registered(self) -> AsyncIterator[Kubelet]:
        """Start the daemon and a kubelet: without a kubelet it publishes two seconds later."""
        async with self.daemon(), open_kubelet(self.registration) as kubelet:
            yield kubelet

    async def published(self) -> ResourceSlice:
        """Wait for the slice and return it."""
        await until(lambda: bool(self.api.all(ResourceSlice)))
        return self.api.all(ResourceSlice)[0]


@asynccontextmanager
async def served_rig(
    folder: Path,
    simulator: Path,
    *,
    profile: Profile = SERVER,
    seconds: float = 60,
    **changes: Any,
) -> AsyncIterator[Rig]:
    """A node with NPUs, and its API server.

    Args:
        folder: An empty folder.
        simulator: The simulated library and tool.
        profile: The board.
        seconds: The time limit for its use.
        changes: Differences from the node that `Rig` describes.
    """
    board = create_board(profile, folder / "host", prebuilt=simulator)
    rig = Rig(folder, board, **changes)
    rig.lay_out()
    rig.api.add(Node(metadata=ObjectMeta(name=NODE)))
    with trio.fail_after(seconds):
        async with rig.served_api():
            yield rig
