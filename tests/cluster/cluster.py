"""A whole cluster of one node, and what tests do with it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster import audit, images
from tests.cluster.binaries import containerd, kubernetes
from tests.cluster.control_plane import ControlPlane
from tests.cluster.node import Node
from tests.cluster.processes import ClusterError, wait_until
from tests.cluster.registry import Registry
from tests.cluster.releases import RELEASES, Release

T = TypeVar("T")
Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster.

    `identity` names all it makes on the machine; `folder` holds its files and
    `logs`, a part of it, the logs of every program and pod and the audit log.
    """

    identity: str
    folder: Path
    logs: Path
    release: Release
    plane: ControlPlane
    registry: Registry
    node: Node

    @classmethod
    def start(cls, version: str, *, mounts: Iterable[tuple[Path, str]] = ()) -> Cluster:
        """Build what is missing, start all of it and wait until the node is Ready.

        Args:
            version: of Kubernetes, a row of the table in `releases`.
            mounts: files and folders of this machine, and where the node sees them.

        Raises:
            ClusterError: something did not start; the logs stay, the message says where.
        """
        release = RELEASES[version]
        programs = kubernetes(version).ready()
        runtime = containerd(release.containerd).ready()
        for base in images.SERVED:
            base.ready()
        identity = f"trio-npu-dra-{os.getpid()}-{secrets.token_hex(3)}"
        folder = Path(tempfile.gettempdir()) / identity
        logs = folder / "logs"
        logs.mkdir(parents=True)
        with ExitStack() as broken:
            broken.callback(_clear, folder, keep=logs)
            plane = ControlPlane.start(programs=programs, folder=folder / "plane", logs=logs)
            broken.callback(plane.stop)
            registry = Registry.start(plane.address, folder=folder, logs=logs)
            broken.callback(registry.stop)
            for base in images.SERVED:
                images.push(base.tag, registry, base.name)
            node = Node.start(
                identity=identity,
                folder=folder / "node",
                logs=logs,
                plane=plane,
                registry=registry,
                containerd=(release.containerd, runtime),
                mounts=mounts,
            )
            broken.callback(node.stop)
            cluster = cls(
                identity=identity,
                folder=folder,
                logs=logs,
                release=release,
                plane=plane,
                registry=registry,
                node=node,
            )
            cluster.wait(cluster._usable, f"the node Ready (logs: {logs})", timeout=90)
            broken.pop_all()
        return cluster

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig that may do everything."""
        return self.plane.admin

    def kubectl(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns its stdout, raises ClusterError."""
        return self.plane.kubectl(*args, stdin=stdin)

    def apply(self, text: str) -> str:
        """Apply manifests given as YAML text; returns kubectl's words."""
        return self.kubectl("apply", "--filename", "-", stdin=text)

    def delete(self, text: str) -> str:
        """Delete what `apply` made, and wait until it is gone."""
        return self.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=text)

    def get(self, kind: str, name: str, *, namespace: str = "default") -> Object | None:
        """Read an object; None if it does not exist."""
        text = self.kubectl(
            *("get", kind, name, "--namespace", namespace, "--output", "json"),
            "--ignore-not-found",
        )
        found: Object | None = json.loads(text) if text else None
        return found

    def objects(
        self, kind: str, *, namespace: str | None = "default", selector: str = ""
    ) -> list[Object]:
        """Read the objects of a kind; of every namespace if `namespace` is None."""
        place = ("--namespace", namespace) if namespace else ("--all-namespaces",)
        text = self.kubectl("get", kind, *place, "--selector", selector, "--output", "json")
        items: list[Object] = json.loads(text)["items"]
        return items

    def wait(self, look: Callable[[], T | None], what: str, *, timeout: float = 60) -> T:
        """Look until something true is seen and return it.

        Raises:
            ClusterError: it was not seen in time, or a program of the node ended.
        """

        def checked() -> T | None:
            self.node.check()
            return look()

        return wait_until(checked, what, timeout=timeout)

    def wait_ok(self, do: Callable[[], T], what: str, *, timeout: float = 60) -> T:
        """Do something that may fail for a while; return what it did once it has worked.

        Raises:
            ClusterError: it did not work in time; the message is that of the last try.
        """
        last: list[ClusterError] = []

        def tried() -> tuple[T] | None:
            try:
                return (do(),)
            except ClusterError as error:
                last[:] = [error]
                return None

        try:
            return self.wait(tried, what, timeout=timeout)[0]
        except ClusterError as late:
            raise ClusterError(f"{late}\n{last}") from late

    def wait_phase(
        self, pod: str, phase: str = "Running", *, namespace: str = "default", timeout: float = 60
    ) -> Object:
        """Wait until a pod is in a phase and, if that is Running, ready.

        Returns:
            The pod.

        Raises:
            ClusterError: not in time; the message ends with the pod's events.
        """

        def look() -> Object | None:
            seen = self.get("pod", pod, namespace=namespace)
            status = (seen or {}).get("status", {})
            if status.get("phase") != phase:
                return None
            ready = [one["ready"] for one in status.get("containerStatuses", [])]
            return seen if phase != "Running" or all(ready) else None

        try:
            return self.wait(look, f"pod {pod} {phase}", timeout=timeout)
        except ClusterError as late:
            events = "\n".join(self.pod_events(pod, namespace=namespace))
            raise ClusterError(f"{late}\nits events:\n{events}") from late

    def pod_events(self, pod: str, *, namespace: str = "default") -> list[str]:
        """The events about a pod, oldest first, each as `Reason: message`."""
        events = [
            event
            for event in self.objects("events", namespace=namespace)
            if event["involvedObject"].get("kind") == "Pod"
            and event["involvedObject"].get("name") == pod
        ]
        events.sort(key=lambda event: str(event["metadata"]["creationTimestamp"]))
        return [f"{event['reason']}: {event['message']}" for event in events]

    def execute(
        self, pod: str, *argv: str, namespace: str = "default", container: str | None = None
    ) -> str:
        """Run a program in a pod's container; returns its stdout, raises ClusterError."""
        which = ("--container", container) if container else ()
        return self.kubectl("exec", "--namespace", namespace, pod, *which, "--", *argv)

    def pod_log(self, pod: str, *, namespace: str = "default", previous: bool = False) -> str:
        """What a pod's containers wrote."""
        before = ("--previous",) if previous else ()
        return self.kubectl("logs", "--namespace", namespace, "--all-containers", *before, pod)

    def audit_mark(self) -> int:
        """A mark for `audit`: the requests after it are those of now and later."""
        return audit.mark(self.plane.audit_log)

    def audit(self, since: int = 0) -> list[audit.Request]:
        """The requests that the API server answered since a mark."""
        return audit.requests(self.plane.audit_log, since=since)

    def registry_push(self, tag: str, name: str) -> None:
        """Push an image of our storage.

        Args:
            tag: as `images.build_driver_image` returned it.
            name: what pods call it, without docker.io: `library/dra-npu:latest`.
        """
        images.push(tag, self.registry, name)

    def stop(self, *, keep_logs: bool = False) -> Path | None:
        """End everything and remove it.

        Args:
            keep_logs: leave the logs, for somebody to read.

        Returns:
            Where the logs are, if kept.
        """
        for part in (self.node, self.registry, self.plane):
            part.stop()
        _clear(self.folder, keep=self.logs if keep_logs else None)
        return self.logs if keep_logs else None

    def _usable(self) -> bool:
        node = self.get("node", self.node.name)
        conditions = (node or {}).get("status", {}).get("conditions", [])
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        return ready and self.get("serviceaccount", "default") is not None


def _clear(folder: Path, *, keep: Path | None) -> None:
    if keep is None:
        shutil.rmtree(folder)
        return
    for path in folder.iterdir():
        if path.is_dir() and path != keep:
            shutil.rmtree(path)
