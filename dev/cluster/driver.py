"""The driver as its DaemonSet runs it on a node with NPUs; other nodes may have one too."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.cluster import audit
from dev.cluster.api import ApiServer, Object
from dev.cluster.cluster import Cluster, NodeAccess
from dev.cluster.immutable import immutable
from dev.cluster.processes import PATIENCE, ClusterError, run
from trio_npu_dra import __version__
from trio_npu_dra.lab.simulator import BoardControl

NAMESPACE = "ascend-dra"
NAME = "ascend-npu-dra-kubeletplugin"
CONTAINER = "kubeletplugin"
DRIVER = "npu.huawei.com"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
IMAGE = f"library/dra-npu:{__version__}"
COMMAND = b"npu-dra\0serve\0"
NPUS = 8
FETCH = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=30)
connection.request("GET", sys.argv[1])
print(connection.getresponse().read().decode())
"""
"""Run on the network of the pod, where this process is not."""

CDI = Path("/etc/cdi")
PLUGIN = Path("/var/lib/kubelet/plugins") / DRIVER
DEVICES_FILE = CDI / f"{DRIVER}-device.json"
"""The CDI file of device plugin resources."""
BOARD = Path("/var/lib/trio-npu-dra/simulator")
PROFILE = BOARD / "profile"
"""Names the board that is laid out on a node."""
POD = "pod-of-"
"""The prefix of the names of pod records."""
IN_USE = rf'^dra_resource_claims_in_use\{{driver_name="{re.escape(DRIVER)}"\}} (\d+)'


def cdi_file(uid: str) -> Path:
    """Where the node has the CDI file of the claim with that UID."""
    return CDI / f"{DRIVER}-npu_{uid}.json"


def record(uid: str) -> Path:
    """Where the node has the record of the claim with that UID."""
    return PLUGIN / "claims" / f"{uid}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The deployed driver, on one node of those that it runs on."""

    cluster: Cluster
    node: NodeAccess

    # --- its pod ---------------------------------------------------------------------------------

    def pod(self) -> Object | None:
        """Its pod, if that runs and is ready."""
        every = self.cluster.objects("pods", namespace=NAMESPACE, selector=f"app={NAME}")
        pods = [pod for pod in every if self._is_here(pod)]
        running = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        if len(pods) != 1 or not running:
            return None
        states = running[0].get("status", {}).get("containerStatuses", [])
        return running[0] if states and all(state["ready"] for state in states) else None

    def pid(self) -> int | None:
        """Process id of the daemon, as this machine numbers processes; None if none runs."""
        ours = self.node.identity.encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended while we looked
                command = (process / "cmdline").read_bytes()
                if COMMAND in command and ours in (process / "cgroup").read_bytes():
                    return int(process.name)
        return None

    def log(self) -> str:
        """What its pods wrote; also the replaced ones, until the kubelet removes their logs."""
        files = sorted(
            self.node.pod_logs.glob(f"{NAMESPACE}_{NAME}-*/*/*.log"),
            key=lambda file: file.stat().st_mtime,
        )
        return "\n".join(file.read_text(errors="replace") for file in files)

    def page(self, path: str) -> str:
        """What its HTTP port answers, asked from within its pod: its NetworkPolicy lets few in."""
        self.wait_ready()
        inside = ("nsenter", f"--net=/proc/{self.pid()}/ns/net", "--")
        return run(*inside, sys.executable, "-c", FETCH, path)

    def registrations(self) -> int:
        """How often the kubelet has registered the daemon that runs now."""
        pod = self.pod()
        return self.said(pod).count("registered with the kubelet") if pod else 0

    def said(self, pod: Object) -> str:
        """What the daemon that runs now in its pod wrote."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        return self.cluster.container_log(name, CONTAINER, namespace=namespace)

    def count(self, message: str, uid: str) -> int:
        """How many lines of its log have that message about the claim with that UID."""
        lines = self.log().splitlines()
        return sum(f'"message": "{message}"' in line and uid in line for line in lines)

    def prepares(self, uid: str) -> int:
        """How often it prepared the claim with that UID, or failed to."""
        return self.count("claim prepared", uid) + self.count("claim not prepared", uid)

    def wait_ready(self) -> Object:
        """Wait until its pod, and no older one, runs; returns it."""
        return self.cluster.wait(self.pod, "the driver's pod ready")

    def wait_registered(self, times: int = 1) -> None:
        """Wait until the kubelet knows the daemon that runs now, so that pods can start."""

        def registered() -> bool:
            try:
                return self.registrations() >= times
            except ClusterError:  # the pod is between two containers, or the kubelet is away
                return False

        self.cluster.wait(registered, f"the driver registered ({times} times)")

    def wait_rolled_out(self, *, devices: int = NPUS) -> None:
        """Wait until the DaemonSet's newest form runs, is registered and has published so many."""
        self.cluster.kubectl(
            *("rollout", "status", f"daemonset/{NAME}", "--namespace", NAMESPACE),
            f"--timeout={PATIENCE:.0f}s",
        )
        self.wait_ready()
        self.wait_registered()
        self.wait_published(devices=devices)

    def execute(self, *argv: str) -> str:
        """Run a program in its pod; returns its stdout, raises ClusterError if it fails."""
        name = self.wait_ready()["metadata"]["name"]
        return self.cluster.execute(name, *argv, namespace=NAMESPACE, container=CONTAINER)

    @contextmanager
    def asked_with_token(self, *, is_bound: bool = True) -> Iterator[ApiServer]:
        """The API server, asked with the token of its pod, or with one that is bound to no pod."""
        pod = self.wait_ready()["metadata"]["name"]
        binding = ("--bound-object-kind", "Pod", "--bound-object-name", pod) if is_bound else ()
        create = ("create", "token", NAME, "--namespace", NAMESPACE, *binding)
        with self.cluster.api.asked_with(self.cluster.kubectl(*create).strip()) as server:
            yield server

    def memory_mib(self) -> dict[str, float]:
        """Resident memory of the daemon: `VmRSS` now, `VmHWM` at most until now."""
        status = Path(f"/proc/{self.pid()}/status").read_text()
        found = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", status))
        return {name: int(value) / 1024 for name, value in found.items()}

    # --- what it publishes -----------------------------------------------------------------------

    def slices(self) -> list[Object]:
        """Its ResourceSlices, by name."""
        slices = self.cluster.objects("resourceslices", namespace=None)
        ours = [item for item in slices if item["spec"]["driver"] == DRIVER and self._is_here(item)]
        return sorted(ours, key=lambda item: str(item["metadata"]["name"]))

    def devices(self) -> dict[str, Any]:
        """The published devices by name."""
        return {
            device["name"]: device
            for item in self.slices()
            for device in item["spec"].get("devices") or []
        }

    def bus(self, name: str) -> str:
        """The PCI address of a published device."""
        return str(self.devices()[name]["attributes"]["resource.kubernetes.io/pciBusID"]["string"])

    def versions(self) -> dict[str, str]:
        """The slices' UIDs and resource versions: every write changes one."""
        return {
            item["metadata"]["uid"]: str(item["metadata"]["resourceVersion"])
            for item in self.slices()
        }

    def writes(self, since: int) -> list[audit.Request]:
        """The writes of its account since a mark of the audit log, but for two kinds.

        Events of faults that earlier tests ended are counted on for ten seconds more, and each
        claim that is prepared gets a status (`status_writes`).
        """
        written = audit.writes(self.cluster.audit(since), user=ACCOUNT)
        left_out = {("update", "events"), ("patch", "resourceclaims")}
        return [each for each in written if (each.verb, each.resource) not in left_out]

    def status_writes(self, since: int) -> list[str]:
        """The claims whose status its account has written since a mark of the audit log."""
        written = audit.writes(self.cluster.audit(since), resource="resourceclaims", user=ACCOUNT)
        return [each.name for each in written]

    def wait_published(self, *, devices: int = NPUS) -> None:
        """Wait until the slices show so many devices, with or without partitions of these.

        By default that is the whole board.
        """

        def whole() -> bool:
            found = self.devices().values()
            is_there = bool(self.slices())
            return is_there and devices == sum(
                "parentUUID" not in each["attributes"] for each in found
            )

        self.cluster.wait(whole, f"{devices} devices published")

    # --- what it keeps on the node ---------------------------------------------------------------

    def cdi_files(self) -> list[str]:
        """Names of its CDI files on the node."""
        return self._files(CDI, f"{DRIVER}-npu_*")

    def records(self) -> list[str]:
        """Names of its claim records on the node."""
        return [name for name in self._files(PLUGIN / "claims", "*") if POD not in name]

    def pod_records(self) -> list[str]:
        """Names of its records of what pods have of device plugins."""
        return self._files(PLUGIN / "claims", f"{POD}*")

    def has_devices_file(self) -> bool:
        """Whether the node has the CDI file of device plugin resources."""
        return self._place(DEVICES_FILE).exists()

    def pod_holders(self) -> dict[str, str]:
        """The names of pods that have devices of device plugins, by the device."""
        folder = self._place(PLUGIN / "claims")
        records = [json.loads((folder / name).read_text()) for name in self.pod_records()]
        return {each["devices"][0]["device"]: each["claim"]["name"] for each in records}

    def traces(self) -> list[str]:
        """All it keeps on the node for claims."""
        return self.cdi_files() + self.records()

    def cdi_spec(self, uid: str) -> Object:
        """The CDI file of the claim with that UID."""
        spec: Object = json.loads(self._place(cdi_file(uid)).read_text())
        return spec

    def wait_recorded(self, *uids: str) -> None:
        """Wait until the claims with those UIDs hold their NPUs."""
        names = {record(uid).name for uid in uids}
        self.cluster.wait(lambda: names <= set(self.records()), f"records of {uids}")

    def wait_without_traces(self) -> None:
        """Wait until no claim is prepared any more."""
        self.cluster.wait(lambda: self.traces() == [], "no CDI file and no claim record")

    def claims_in_use(self) -> int:
        """How many claims the kubelet's metrics say are in use with the driver."""
        text = self.cluster.api.ask("GET", f"/api/v1/nodes/{self.node.name}/proxy/metrics")
        found = re.search(IN_USE, text, re.MULTILINE)
        return int(found[1]) if found else 0

    def _is_here(self, about: Object) -> bool:
        return bool(about["spec"].get("nodeName") == self.node.name)

    def _files(self, folder: Path, pattern: str) -> list[str]:
        return sorted(path.name for path in self._place(folder).glob(pattern))

    def _place(self, path: Path) -> Path:
        return self.node.root / path.relative_to("/")

    # --- what tests do to it ---------------------------------------------------------------------

    def board(self) -> BoardControl:
        """A handle on the simulated board; close it."""
        folder = self._place(BOARD) / "usr/local/Ascend/driver/lib64"
        return BoardControl(folder / "board.state")

    def shared_chips(self, count: int = NPUS) -> set[int]:
        """Those of the first chips that several containers may use."""
        with self.board() as board:
            return {chip for chip in range(count) if board.read(chip, "share_enable")}

    @contextmanager
    def obstacle(self, *places: Path) -> Iterator[None]:
        """Files of the driver can be neither replaced nor removed.

        A file that did not exist is an empty one meanwhile, and is removed at the end.
        """
        with ExitStack() as clearing:
            for place in map(self._place, places):
                if not place.exists():
                    place.touch()
                    clearing.callback(place.unlink)
                clearing.enter_context(immutable(place))
            yield

    @contextmanager
    def away(self) -> Iterator[None]:
        """The driver has left the node, as when its DaemonSet is not for that node any more."""
        self.label_node(None)
        self.cluster.wait(lambda: self.pid() is None, "the driver away")
        try:
            yield
        finally:
            self.label_node("true")
            self.wait_ready()
            self.wait_registered()
            self.wait_published()

    def kill_only(self) -> int:
        """End the daemon with SIGKILL; returns the process id that it had."""
        before = self.pid()
        assert before is not None, "no daemon runs"
        os.kill(before, signal.SIGKILL)
        return before

    def kill(self) -> None:
        """End the daemon with SIGKILL, and wait until the kubelet has restarted it."""
        before = self.kill_only()
        self.cluster.wait(lambda: self.pid() not in {None, before}, "a new daemon")
        self.wait_ready()
        self.wait_registered()

    def set_environment(self, *words: str, devices: int = NPUS) -> None:
        """Change variables of the DaemonSet (`NAME=VALUE`, or `NAME-`) and wait for its new pod."""
        self.cluster.kubectl("set", "env", f"daemonset/{NAME}", "--namespace", NAMESPACE, *words)
        self.wait_rolled_out(devices=devices)

    def remove(self) -> None:
        """Delete the DaemonSet, and wait until its pod is gone."""
        self.cluster.remove("daemonset", NAME, namespace=NAMESPACE, foreground=True)

    def restart(self) -> None:
        """Replace its pod, as an update of the image does."""
        self.cluster.kubectl("rollout", "restart", f"daemonset/{NAME}", "--namespace", NAMESPACE)
        self.wait_rolled_out()

    def label_node(self, value: str | None) -> None:
        """Set the node label that the DaemonSet selects, or remove it (None)."""
        change = {"metadata": {"labels": {"npu.huawei.com/simulator": value}}}
        self.cluster.api.patch("node", self.node.name, change=change)
