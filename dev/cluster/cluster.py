"""Operations of tests on a cluster, of either kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import yaml

from dev.cluster import audit
from dev.cluster.api import ApiServer, NotThere, Object
from dev.cluster.processes import ClusterError, wait_until

T = TypeVar("T")

APART: Object = {"key": "example.com/apart", "effect": "NoSchedule"}
"""The taint of every node but the first: only pods that tolerate it come there."""


class NodeAccess(Protocol):
    """A test's access to a node with NPUs."""

    @property
    def name(self) -> str:
        """Its name in Kubernetes."""

    @property
    def identity(self) -> str:
        """A word in the cgroup path of every process on it, and of no other process."""

    @property
    def root(self) -> Path:
        """Its / as this process sees it: files put there are on the node."""

    @property
    def pod_logs(self) -> Path:
        """The folder of its pods' logs, as this process sees it."""

    def execute(self, *argv: str | Path, timeout: float = 60) -> str:
        """Run a program on it; returns its stdout, raises ClusterError if it fails."""

    def kill_kubelet(self) -> None:
        """End the kubelet with SIGKILL, and nothing starts it again; pods go on."""

    def start_kubelet(self) -> None:
        """Start the kubelet that was killed."""

    def restart_kubelet(self) -> None:
        """End the kubelet and start it again; pods go on."""

    def check(self) -> None:
        """Raise ClusterError if a part of the node has ended by itself."""


class Cluster(ABC):
    """A running cluster with a node that has NPUs, or several.

    Pods that do not choose a node run on the first of `nodes`, because further ones have the taint
    APART. `logs` is a folder for logs that stay if a test fails, `audit_log` the API
    server's log of requests.
    """

    __slots__ = ()

    nodes: Sequence[NodeAccess]
    logs: Path
    audit_log: Path

    @property
    def node(self) -> NodeAccess:
        """The first node."""
        return self.nodes[0]

    @property
    @abstractmethod
    def api(self) -> ApiServer:
        """Its API server, asked with all rights."""

    @abstractmethod
    def kubectl(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns its stdout, raises ClusterError."""

    @abstractmethod
    def helm(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run Helm as the administrator; returns its stdout, raises ClusterError."""

    @abstractmethod
    def api_server_away(self) -> AbstractContextManager[None]:
        """End the API server for the block, and wait after it until it is ready again."""

    @abstractmethod
    def provide_image(
        self, context: Path, *, target: str | None = None, name: str, is_final: bool = False
    ) -> None:
        """Build the Dockerfile of a folder, up to a stage, and put the image where pods find it.

        Its name is the one in pods; without a registry it is one of docker.io's:
        `library/dra-npu:1.0.0`. One whose name `is_final` is built only once.

        Raises:
            ClusterError: the build failed; the message ends with its output.
        """

    @abstractmethod
    def stop(self, *, keep_logs: bool = False) -> Path | None:
        """End everything and remove it; returns the folder of the logs if they are kept."""

    @abstractmethod
    def left_behind(self) -> list[str]:
        """The things still on the machine after `stop`: none, if all is well."""

    def apply(self, text: str) -> None:
        """Apply manifests given as YAML text."""
        self.api.apply(yaml.safe_load_all(text))

    def delete(self, text: str) -> None:
        """Delete what `apply` made, and wait until it is gone."""
        for about in yaml.safe_load_all(text):
            self.remove(about["kind"], about["metadata"]["name"])

    def remove(
        self,
        kind: str,
        *names: str,
        namespace: str = "default",
        grace: int | None = None,
        foreground: bool = False,
    ) -> None:
        """Delete objects and wait until they are gone; the options are those of `api.delete`."""
        for name in names:
            self.api.delete(kind, name, namespace=namespace, grace=grace, foreground=foreground)
        for name in names:
            self.wait_gone(kind, name, namespace=namespace)

    def wait_gone(self, kind: str, name: str, *, namespace: str = "default") -> None:
        """Wait until an object that is being deleted is gone; another of its name may be there."""

        def gone() -> bool:
            found = self.get(kind, name, namespace=namespace)
            return found is None or "deletionTimestamp" not in found["metadata"]

        self.wait(gone, f"{kind} {name} gone")

    def get(self, kind: str, name: str, *, namespace: str = "default") -> Object | None:
        """Read an object; None if it does not exist."""
        try:
            return self.api.read(self.api.resource(kind).path(namespace, name))
        except NotThere:
            return None

    def objects(
        self, kind: str, *, namespace: str | None = "default", selector: str = ""
    ) -> list[Object]:
        """Read the objects of a kind; of every namespace if `namespace` is None."""
        path = self.api.resource(kind).path(namespace)
        found = self.api.read(path, labelSelector=selector)
        # A list names the kind of its items once.
        about = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        return [about | item for item in found["items"]]

    def wait(self, look: Callable[[], T | None], what: str) -> T:
        """Call until the result is true, and return the result.

        Raises:
            ClusterError: it was not seen in time, or a program of a node ended.
        """

        def checked() -> T | None:
            for node in self.nodes:
                node.check()
            return look()

        return wait_until(checked, what)

    def wait_ok(self, do: Callable[[], T], what: str) -> T:
        """Call what may fail for a while; return the result once it has worked.

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
            return self.wait(tried, what)[0]
        except ClusterError as late:
            raise ClusterError(f"{late}\n{last}") from late

    def wait_phase(self, pod: str, phase: str = "Running", *, namespace: str = "default") -> Object:
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
            return self.wait(look, f"pod {pod} {phase}")
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

    def container_log(self, pod: str, container: str, *, namespace: str = "default") -> str:
        """The output of a container that runs, or that was the last one to run."""
        path = self.api.resource("pods").path(namespace, pod, "log")
        return self.api.ask("GET", path, query={"container": container})

    def audit_mark(self) -> int:
        """A mark for `audit`, after all requests until now."""
        return audit.mark(self.audit_log)

    def audit(self, since: int = 0) -> list[audit.Request]:
        """The requests that the API server answered since a mark."""
        return audit.requests(self.audit_log, since=since)
