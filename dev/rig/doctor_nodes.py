"""Nodes for `npu-dra doctor`: a host's root in a folder, with what runs there."""

from __future__ import annotations

import contextlib
import io
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev.rig.looking import SERVER
from trio_npu_dra.agent.cli.main import main
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.kit.base.storage import PLUGIN_FOLDER_MODE
from trio_npu_dra.lab.simulator import Profile, SimulatedBoard, create_board
from trio_npu_dra.tools.doctor.places import Places

NODE = "node-1"
DRIVER = "npu.huawei.com"
POD_UID = "pod-1"

HUAWEIS_PODS = (
    "3f6d2f5e-8f0e-4a54-8c43-6a4a4a1c9a01",
    "3f6d2f5e-8f0e-4a54-8c43-6a4a4a1c9a02",
)
POD = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f8b.slice/c.scope\n"
SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"

CONTAINERD = """\
version = 3
imports = ["conf.d/*.toml"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""

ASCEND_BY_DEFAULT = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
enable_cdi = false
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "ascend"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.ascend]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.ascend.options]
BinaryName = "/usr/local/Ascend/Ascend-Docker-Runtime/ascend-docker-runtime"
"""
"""As Huawei's installer leaves it, on a containerd 1.7."""


@dataclass
class Node:
    """A node; healthy as `node` makes it.

    Attributes:
        root: The folder with the host's root.
        board: Its NPUs; None on a node where there is no Ascend driver.
    """

    root: Path
    board: SimulatedBoard | None
    _open: ExitStack = field(default_factory=ExitStack)

    @property
    def places(self) -> Places:
        """Where the doctor finds it."""
        kubelet = self.root / "var/lib/kubelet"
        return Places(
            host=Host(
                host_root=self.root, dev_root=self.root / "dev", sysfs_root=self.root / "sys"
            ),
            driver_name=DRIVER,
            plugins=kubelet / "plugins",
            registrations=kubelet / "plugins_registry",
            device_plugins=kubelet / "device-plugins",
            cdi=self.root / "etc/cdi",
        )

    def write(self, path: str, text: str) -> Path:
        """Write a file of the host."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def listen(self, path: Path) -> None:
        """Listen on a socket."""
        path.parent.mkdir(parents=True, exist_ok=True)
        listener = self._open.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen()

    def run_driver(self, pod_uid: str) -> None:
        """Let an instance of this driver run, as far as its sockets tell."""
        places = self.places
        self.listen(places.state / f"control-{pod_uid}.sock")
        self.listen(places.registrations / f"{DRIVER}-{pod_uid}-reg.sock")

    def run_program(self, pid: int, *words: str, cgroup: str = "0::/system.slice\n") -> None:
        """Let a process of the host run."""
        process = f"proc/{pid}"
        self.write(f"{process}/comm", f"{Path(words[0]).name}\n")
        self.write(f"{process}/cmdline", "".join(f"{word}\0" for word in words))
        self.write(f"{process}/cgroup", cgroup)
        (self.root / process / "root").symlink_to(self.root)

    def use(self, chip: int, *pids: int) -> None:
        """Let processes use an NPU."""
        assert self.board is not None
        with self.board.control() as control:
            control.set_processes(chip, [(pid, 1 << 30) for pid in pids])

    def remember(self, resource: str, *pods: str, devices: Sequence[str] = ()) -> None:
        """Let the kubelet's checkpoint have pods with that resource, by UID."""
        entries = [
            {"PodUID": pod, "ContainerName": "c", "ResourceName": resource, "DeviceIDs": {"-1": []}}
            for pod in pods
        ]
        data = {"PodDeviceEntries": entries or None, "RegisteredDevices": {resource: devices}}
        text = json.dumps({"Data": data, "Checksum": 1})
        self.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", text)

    def run_huaweis_pods(self, resource: str, *devices: str) -> None:
        """Let two pods run that another plugin gave devices, and have one that has ended."""
        self.remember(resource, *HUAWEIS_PODS, "ended", devices=devices)
        for pid, uid in enumerate(HUAWEIS_PODS, 500):
            name = uid.replace("-", "_")
            self.run_program(pid, "/bin/train", cgroup=f"0::/kubepods.slice/pod{name}.slice/c\n")

    def doctor(self, *flags: str) -> tuple[int, str]:
        """Run the command; its exit code, and what it prints with the host's paths."""
        places = self.places
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = main(
                [
                    *("doctor", f"--node-name={NODE}", f"--host-root={self.root}"),
                    f"--dev-root={places.host.dev_root}",
                    f"--sysfs-root={places.host.sysfs_root}",
                    f"--kubelet-plugins-directory-path={places.plugins}",
                    f"--kubelet-registrar-directory-path={places.registrations}",
                    f"--kubelet-device-plugins-directory-path={places.device_plugins}",
                    f"--cdi-root={places.cdi}",
                    *flags,
                ]
            )
        return code, printed.getvalue().replace(str(self.root), "")

    def findings(self) -> dict[str, list[tuple[str, str]]]:
        """What the command says as JSON: level and text, by check."""
        wire: dict[str, Any] = json.loads(self.doctor("--output=json")[1])
        found: dict[str, list[tuple[str, str]]] = {}
        for each in wire["findings"]:
            found.setdefault(each["check"], []).append((each["level"], each["text"]))
        return found


@contextmanager
def node(folder: Path, simulator: Path, *, profile: Profile = SERVER) -> Iterator[Node]:
    """A healthy node: NPUs, kubelet, containerd, and this driver."""
    root = folder / "h"  # a short path: unix sockets have 107 bytes
    board = create_board(profile, root, prebuilt=simulator)
    with ExitStack() as opened:
        made = Node(root, board, opened)
        places = made.places
        places.state.mkdir(parents=True)
        places.state.chmod(PLUGIN_FOLDER_MODE)
        places.cdi.mkdir(parents=True)
        made.write("etc/containerd/config.toml", CONTAINERD)
        made.write("var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")
        made.run_program(100, "/usr/bin/containerd")
        made.run_program(200, "/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml")
        made.listen(places.device_plugins / "kubelet.sock")
        made.run_driver(POD_UID)
        yield made
