"""`npu-dra demo`: the real daemon on a simulated board, with stand-ins for what is around it.

Real are discovery through the C library, the gRPC and HTTP calls over unix sockets, claim records
and CDI files. Stand-ins are the API server and the kubelet.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import trio
import yaml

from trio_npu_dra.agent import daemon
from trio_npu_dra.agent.settings import Settings
from trio_npu_dra.kit.api.objects import (
    Allocation,
    AllocationResult,
    DeviceAllocation,
    Node,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from trio_npu_dra.kit.base import logs
from trio_npu_dra.kit.base.errors import DriverError
from trio_npu_dra.kit.base.terminal import say
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from trio_npu_dra.kit.kubelet.endpoints import Endpoints
from trio_npu_dra.lab.simulator import SimulatedBoard, create_board, load_profile, profile_names
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState
from trio_npu_dra.lab.standins.kubelet import Kubelet, open_kubelet

NODE = "demo-node"
CLAIM = "npu-resource"
DEVICE = "npu-0"
TIME_LIMIT_SECONDS = 120.0  # a slow machine takes one of the two minutes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which board."""
    parser.add_argument(
        "--profile",
        choices=profile_names(),
        metavar="PROFILE",
        default="910b4-8",
        help="simulated board (default: 910b4-8)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Show the way of one claim."""
    logs.configure("info", "text", sys.stdout)
    # A short path: unix sockets have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="npu-") as folder:
        board = create_board(load_profile(arguments.profile), Path(folder) / "host")
        _heading(f"a simulated board: {arguments.profile}, libdcmi.so with the vendor's ABI")
        _show(_npu_smi(board))
        trio.run(_show_all, board, Path(folder))
    _heading("done")
    return 0


async def _show_all(board: SimulatedBoard, folder: Path) -> None:
    settings = _settings(board, folder)
    state = ApiState()
    state.add(Node(metadata=ObjectMeta(name=NODE)))
    uid = state.add(_claim()).metadata.uid or ""
    with trio.fail_after(TIME_LIMIT_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_api, state, folder / "api.sock")
            _heading("the daemon starts: npu-dra serve")
            async with trio.open_nursery() as agent:
                await agent.start(daemon.run, settings)
                async with open_kubelet(_registration(settings)) as kubelet:
                    await _show_slice(state)
                    await _show_claim(kubelet, settings, uid)
                _heading("the daemon stops; its slice stays for the next one")
                agent.cancel_scope.cancel()
            nursery.cancel_scope.cancel()


async def _show_slice(state: ApiState) -> None:
    while not (slices := state.all(ResourceSlice)):  # noqa: ASYNC110 - the state has no event
        await trio.sleep(0.01)
    published = slices[0].to_wire()
    devices = published["spec"]["devices"]
    published["spec"]["devices"] = devices[:1]
    _heading(f"the ResourceSlice it published, with the first of its {len(devices)} devices")
    _show(yaml.safe_dump(published, sort_keys=False))


async def _show_claim(kubelet: Kubelet, settings: Settings, uid: str) -> None:
    claim = Claim(namespace="default", uid=uid, name=CLAIM)
    _heading(
        f"the scheduler gave {DEVICE} to claim default/{CLAIM}; the kubelet asks to prepare it"
    )
    prepared = (await kubelet.prepare([claim]))[uid]
    _show(yaml.safe_dump(prepared.to_dict(), sort_keys=False))
    if prepared.error:
        raise DriverError(f"the claim was not prepared: {prepared.error}")
    _heading("the CDI file from which the container runtime takes what the container gets")
    for path in _files(settings.cdi_root):
        _show(f"# {path.name}\n" + _pretty(path))
    _heading("the pod has ended; the kubelet asks to unprepare the claim")
    error = (await kubelet.unprepare([claim]))[uid]
    if error:
        raise DriverError(f"the claim was not unprepared: {error}")
    _show(f"CDI files left: {len(_files(settings.cdi_root))}")


def _settings(board: SimulatedBoard, folder: Path) -> Settings:
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(folder / "api.sock")))
    registrar, plugins = folder / "plugins_registry", folder / "plugins"
    registrar.mkdir()
    plugins.mkdir()
    return Settings(
        node_name=NODE,
        host_root=board.root,
        dev_root=board.dev_root,
        sysfs_root=board.sysfs_root,
        kubelet_registrar_directory_path=registrar,
        kubelet_plugins_directory_path=plugins,
        cdi_root=folder / "cdi",
        container_libraries="env",  # the hook of the default is in the image only
        kubeconfig=kubeconfig,
    )


def _registration(settings: Settings) -> Path:
    """Where the kubelet finds the daemon."""
    return Endpoints(
        driver_name=settings.driver_name,
        plugin_directory=settings.plugin_directory,
        registrar_directory=settings.kubelet_registrar_directory_path,
    ).registration


def _kubeconfig(socket: Path) -> dict[str, Any]:
    return {
        "current-context": "demo",
        "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        "clusters": [{"name": "demo", "cluster": {"server": f"unix://{socket}"}}],
        "users": [{"name": "demo", "user": {}}],
    }


def _claim() -> ResourceClaim:
    result = AllocationResult(request="npu", driver="npu.huawei.com", pool=NODE, device=DEVICE)
    return ResourceClaim(
        metadata=ObjectMeta(name=CLAIM, namespace="default"),
        status=ResourceClaimStatus(
            allocation=Allocation(devices=DeviceAllocation(results=(result,)))
        ),
    )


def _npu_smi(board: SimulatedBoard) -> str:
    command = [str(board.npu_smi), "info"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _pretty(path: Path) -> str:
    spec = json.loads(path.read_bytes())
    return yaml.safe_dump(spec, sort_keys=False, default_flow_style=None, width=100)


def _heading(text: str) -> None:
    say("", f"=== {text}")


def _show(text: str) -> None:
    say(*(f"    {line}" for line in text.rstrip().split("\n")))
