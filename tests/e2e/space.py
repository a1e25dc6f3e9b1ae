"""A namespace of one test, and the pods and claims in it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from dev.cluster.api import Object
from dev.cluster.cluster import APART, Cluster, NodeAccess

T = TypeVar("T")

EXAMPLES = Path(__file__).parent.parent.parent / "k8s/examples"
CLASS = "npu.huawei.com"
BUS = re.compile(r"\b[0-9A-F]{4}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]\b")
ENDS_AT_ONCE = ("sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait")
"""As process 1 a plain `sleep` would ignore TERM."""
USES = ("sh", "-c", "trap 'exit 0' TERM; npu-smi info watch > /tmp/seen & sleep 600 & wait")
"""A container that goes on using its NPUs: without a share flag it keeps all others away."""


def request(name: str = "npu", *, cel: str | None = None, count: int | None = None) -> Object:
    """A request for NPUs; `cel` chooses among them."""
    exactly: Object = {"deviceClassName": CLASS}
    if cel is not None:
        exactly["selectors"] = [{"cel": {"expression": cel}}]
    if count is not None:
        exactly["count"] = count
    return {"name": name, "exactly": exactly}


def claim(
    name: str,
    *requests: Object,
    constraints: Sequence[Object] = (),
    parameters: Object | None = None,
) -> Object:
    """A claim, for one NPU by default; `parameters` is its opaque config for our driver."""
    devices: Object = {"requests": list(requests) or [request()]}
    if constraints:
        devices["constraints"] = list(constraints)
    if parameters is not None:
        devices["config"] = [{"opaque": {"driver": CLASS, "parameters": parameters}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def claim_template(name: str, made: Object) -> Object:
    """A template from which each pod gets a claim like that one."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": made["spec"]},
    }


def device_class(name: str, cel: str, *, config: Sequence[Object] = ()) -> Object:
    """A class of the devices that `cel` chooses."""
    selectors = [{"cel": {"expression": cel}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, "config": list(config)},
    }


def container(
    name: str, *claims: str, image: str = "ubuntu", command: Sequence[str] = ENDS_AT_ONCE
) -> Object:
    """A container that uses those claims, or of a claim one request: `claim/request`."""
    uses = [dict(zip(("name", "request"), each.split("/"), strict=False)) for each in claims]
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",  # what is loaded into a node is in no registry
        "command": list(command),
        "resources": {"claims": uses},
    }


def pod(
    name: str,
    *claims: str,
    containers: Sequence[Object] = (),
    init_containers: Sequence[Object] = (),
    image: str = "ubuntu",
    node: str | None = None,
    is_gated: bool = False,
) -> Object:
    """A pod with those claims, all of them for its one container unless containers are given.

    With a `node` it bypasses the scheduler. A gated one is not scheduled until `ungate`.
    """
    spec: Object = {
        "terminationGracePeriodSeconds": 5,
        "restartPolicy": "Never",
        "initContainers": list(init_containers),
        "containers": list(containers) or [container("main", *claims, image=image)],
        "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
    }
    if node is not None:
        spec["nodeName"] = node
    if is_gated:
        spec["schedulingGates"] = [{"name": "example.com/not-yet"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def placed(pod: Object, node: NodeAccess) -> Object:
    """The pod, for the scheduler to place on that node only."""
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    pod["spec"]["tolerations"] = [{"key": APART["key"], "operator": "Exists"}]
    return pod


def admit(cluster: Cluster, about: Object) -> Object:
    """Do a dry run of an object's creation; returns it, raises ClusterError if it is refused."""
    return cluster.api.create(about, dry_run=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A namespace; names given to its methods are in it."""

    cluster: Cluster
    name: str

    @classmethod
    def create(cls, cluster: Cluster, name: str) -> Space:
        """Make the namespace and wait until pods can be created in it."""
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        space = cls(cluster=cluster, name=name)
        space.wait(lambda: space.get("serviceaccount", "default"), "the default service account")
        return space

    def clear(self) -> None:
        """Delete the pods and claims, and wait until they are gone.

        A grace of a second, because as process 1 the guide's `sleep` ignores TERM.
        """
        for kind, grace in (("pods", 1), ("resourceclaims", None)):
            every = self.cluster.objects(kind, namespace=self.name)
            self.delete(kind, *(each["metadata"]["name"] for each in every), grace=grace)

    def remove(self) -> None:
        """Delete the pods and claims, and leave the rest to the server."""
        self.clear()
        self.cluster.api.delete("namespace", self.name)

    def let_look_on(self) -> None:
        """Allow admin access."""
        labels = {"resource.kubernetes.io/admin-access": "true"}
        self.cluster.api.patch("namespace", self.name, change={"metadata": {"labels": labels}})

    def apply(self, *objects: Object) -> None:
        """Create or change objects."""
        self.cluster.api.apply(objects, namespace=self.name)

    def apply_example(self, name: str, node: NodeAccess | None = None) -> None:
        """Create what is in an example, as it is, or its pod for a node of the test's choice."""
        text = (EXAMPLES / f"{name}.yaml").read_text()
        if node is None:
            self.apply_text(text)
            return
        for about in yaml.safe_load_all(text):
            self.apply(placed(about, node) if about["kind"] == "Pod" else about)

    def apply_text(self, manifests: str) -> None:
        """Create or change what YAML text says, as people do: with kubectl."""
        self.cluster.kubectl("apply", "--namespace", self.name, "--filename", "-", stdin=manifests)

    def get(self, kind: str, name: str) -> Object | None:
        """Read an object; None if it does not exist."""
        return self.cluster.get(kind, name, namespace=self.name)

    def wait(self, look: Callable[[], T | None], what: str) -> T:
        """Look until something true is seen and return it."""
        return self.cluster.wait(look, what)

    def wait_phase(self, pod: str, phase: str = "Running") -> Object:
        """Wait until a pod is in a phase; returns it."""
        return self.cluster.wait_phase(pod, phase, namespace=self.name)

    def pods_of(self, owner: str) -> list[Object]:
        """The pods that a Deployment's ReplicaSet, a StatefulSet or a Job has made, by name."""
        pods = self.cluster.objects("pods", namespace=self.name)
        return sorted(
            (pod for pod in pods if pod["metadata"]["name"].startswith(f"{owner}-")),
            key=lambda pod: str(pod["metadata"]["name"]),
        )

    def start(self, name: str, *requests: Object) -> Object:
        """Create a pod and its claim of the same name, and wait until it runs; returns the pod."""
        self.apply(claim(name, *requests), pod(name, name))
        return self.wait_phase(name)

    def assert_runs_on(self, before: Object, *, npus: int | None = None) -> None:
        """A pod runs, its containers are those that it had, and its first one sees so many NPUs."""
        after = self.wait_phase(before["metadata"]["name"])
        assert container_ids(after) == container_ids(before)
        if npus is not None:
            assert len(self.seen_npus(after["metadata"]["name"])) == npus

    def wait_event(self, pod: str, *words: str) -> str:
        """Wait for an event of a pod that has all those texts; returns it."""

        def look() -> str | None:
            events = self.cluster.pod_events(pod, namespace=self.name)
            return next((line for line in events if all(word in line for word in words)), None)

        return self.wait(look, f"an event of pod {pod} with {words}")

    def assert_waits(self, name: str) -> None:
        """The scheduler finds no device for a pod and its claim of the same name."""
        self.wait_event(name, "FailedScheduling", "cannot allocate all claims")
        assert (self.get("pod", name) or {})["status"]["phase"] == "Pending"
        assert self.allocated(name) == []

    def delete(
        self, kind: str, *names: str, grace: int | None = None, foreground: bool = False
    ) -> None:
        """Delete objects and wait until they are gone."""
        self.cluster.remove(kind, *names, namespace=self.name, grace=grace, foreground=foreground)

    def delete_pod(self, name: str, *, grace: int | None = None) -> None:
        """Delete a pod and wait until it is gone."""
        self.delete("pod", name, grace=grace)

    def begin_delete(self, kind: str, *names: str, grace: int | None = None) -> None:
        """Begin to delete objects; does not wait."""
        for name in names:
            self.cluster.api.delete(kind, name, namespace=self.name, grace=grace)

    def wait_gone(self, pod: str) -> None:
        """Wait until a pod that is being deleted is gone."""
        self.wait(lambda: self.get("pod", pod) is None, f"pod {pod} gone")

    def try_again(self, *pods: str) -> None:
        """Make the kubelet retry waiting pods now: it does so when anything of a pod changes.

        Otherwise it retries 10 to 15 seconds after it failed to prepare their claims, on kind 60
        to 90.
        """
        for name in pods:
            again = {"example.com/again": str(time.time_ns())}
            self.patch("pod", name, change={"metadata": {"annotations": again}})

    def execute(self, pod: str, *argv: str, container: str | None = None) -> str:
        """Run a program in a pod's container."""
        return self.cluster.execute(pod, *argv, namespace=self.name, container=container)

    def log(self, pod: str, container: str) -> str:
        """What a container wrote."""
        return self.cluster.container_log(pod, container, namespace=self.name)

    def kill_only(self, pod: str, container: str = "main") -> Object:
        """End a container of a pod with SIGKILL; returns the state that it had."""
        before = self._state(pod, container)
        identity = str(before["containerID"]).rpartition("/")[2].encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended with the container's first process
                if identity in (process / "cgroup").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        return before

    def kill(self, pod: str, container: str = "main") -> None:
        """End a container of a pod with SIGKILL, and wait until the kubelet has restarted it."""
        before = self.kill_only(pod, container)

        def restarted() -> bool:
            after = self._state(pod, container)
            return bool(after["ready"] and after["restartCount"] == before["restartCount"] + 1)

        self.wait(restarted, f"container {container} of pod {pod} restarted")

    def _state(self, pod: str, container: str) -> Object:
        states = (self.get("pod", pod) or {})["status"]["containerStatuses"]
        return next(state for state in states if state["name"] == container)

    # --- NPUs ------------------------------------------------------------------------------------

    def allocated(self, name: str) -> list[str]:
        """The devices that a claim has, sorted."""
        found = self.get("resourceclaim", name) or {}
        allocation = found.get("status", {}).get("allocation", {})
        results = allocation.get("devices", {}).get("results", [])
        return sorted(str(result["device"]) for result in results)

    def devices(self, name: str) -> dict[str, list[str]]:
        """The devices that a claim has, by request; one of a subrequest is `request/subrequest`."""
        found: dict[str, list[str]] = {}
        claim = self.get("resourceclaim", name) or {}
        for result in claim["status"]["allocation"]["devices"]["results"]:
            found.setdefault(result["request"], []).append(result["device"])
        return found

    def allocate(self, claim: str, pod: str, *, node: str | None = None, **devices: str) -> None:
        """Give a claim devices of a node, reserved for a pod, by hand: `npu="npu-3"`, by request.

        The node is ours unless another is named. As with the scheduler, results of a request with
        admin access have it too.
        """
        node = node or self.cluster.node.name
        requests = (self.get("resourceclaim", claim) or {})["spec"]["devices"]["requests"]
        looks_on = {each["name"]: each["exactly"].get("adminAccess", False) for each in requests}
        results = [
            {
                "request": name,
                "driver": CLASS,
                "pool": node,
                "device": device,
                "adminAccess": looks_on[name],
            }
            for name, device in devices.items()
        ]
        here = {"key": "metadata.name", "operator": "In", "values": [node]}
        status = {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
            },
            "reservedFor": [{"resource": "pods", "name": pod, "uid": self.uid("pod", pod)}],
        }
        self.patch("resourceclaim", claim, "status", change={"status": status})

    def ungate(self, pod: str) -> None:
        """Remove a pod's scheduling gates."""
        self.patch("pod", pod, change={"spec": {"schedulingGates": None}})

    def patch(self, kind: str, *name: str, change: Object) -> None:
        """Change fields of an object, or of the subresource named after it; None removes one."""
        self.cluster.api.patch(kind, *name, change=change, namespace=self.name)

    def uid(self, kind: str, name: str) -> str:
        """The UID of an object that exists."""
        found = self.get(kind, name)
        assert found is not None, f"{kind} {name} does not exist"
        return str(found["metadata"]["uid"])

    def seen_npus(self, pod: str, *, container: str | None = None) -> list[str]:
        """PCI addresses of the NPUs that npu-smi shows in a container, in lower case."""
        return bus_ids(self.execute(pod, "npu-smi", "info", container=container))

    def davinci_nodes(self, pod: str, *, container: str | None = None) -> list[str]:
        """The chips' device nodes in a container."""
        text = self.execute(pod, "sh", "-c", "ls -d /dev/davinci[0-9]*", container=container)
        return sorted(text.split())


def container_ids(pod: Object) -> list[str]:
    """The ids of a pod's containers: a restart changes them."""
    return [str(status["containerID"]) for status in pod["status"]["containerStatuses"]]


def is_going(about: Object) -> bool:
    """Whether an object is being deleted."""
    return "deletionTimestamp" in about["metadata"]


def is_running(pod: Object) -> bool:
    """Whether a pod runs and is not being deleted."""
    return pod["status"].get("phase") == "Running" and not is_going(pod)


def bus_ids(table: str) -> list[str]:
    """The PCI addresses in what npu-smi printed, in lower case."""
    return sorted(found.lower() for found in BUS.findall(table))
