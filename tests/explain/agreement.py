"""Does the real scheduler do what `explain` says? `python -m tests.explain.agreement [VERSION]`.

A control plane without kubelets gets random pools and claims, each on a node of its own. First
`explain` says of each pod whether its claims can be had; then the pods are created. The exit status
is 1 if the scheduler does otherwise.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.cluster.api import ApiServer, NotThere, Object
from tests.cluster.binaries import kubernetes
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import wait_until
from tests.cluster.releases import DEFAULT, RELEASES
from tests.explain.random_worlds import Maker, World
from tests.explain.world import class_, node, pod, view_of
from trio_npu_dra.cluster.explain.explain import explain_pod
from trio_npu_dra.cluster.explain.explanation import Explanation, Outcome
from trio_npu_dra.cluster.objects import Pod
from trio_npu_dra.cluster.view import ClusterView

CASES: Final = 300
LISTS: Final = (
    ("Node", "/api/v1/nodes"),
    *(
        (kind, f"/apis/resource.k8s.io/v1/{plural}")
        for kind, plural in (
            ("ResourceSlice", "resourceslices"),
            ("ResourceClaim", "resourceclaims"),
            ("DeviceClass", "deviceclasses"),
        )
    ),
)


@contextmanager
def scheduler(version: str) -> Iterator[ApiServer]:
    """A control plane with a scheduler, and nodes without kubelets."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plane = ControlPlane.start(
            programs=kubernetes(version).ready(),
            folder=folder / "plane",
            logs=folder,
            gates=RELEASES[version].gates,
        )
        try:
            wait_until(lambda: _has_account(plane.api), "the service account", timeout=30)
            yield plane.api
        finally:
            plane.stop()


def _has_account(api: ApiServer) -> bool:
    try:
        api.read("/api/v1/namespaces/default/serviceaccounts/default")
    except NotThere:
        return False
    return True


def at_once(work: Callable[[Object], object], objects: Iterable[Object]) -> None:
    """Do it for all objects, several at a time."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, objects))


def store(api: ApiServer, about: Object) -> None:
    """Create an object with its status."""
    made = api.create(without_uid(about))
    if "status" in about and about["kind"] in {"Node", "ResourceClaim"}:
        path = api.resource(about["kind"]).path("default", about["metadata"]["name"], "status")
        status = about["status"]
        if about["kind"] == "Node":
            status = {**status, "capacity": status["allocatable"]}
        api.ask("PUT", path, {**made, "status": status})


def without_uid(about: Object) -> Object:
    """The API server gives UIDs."""
    metadata = {key: value for key, value in about["metadata"].items() if key != "uid"}
    return {**about, "metadata": metadata}


def view(api: ApiServer) -> ClusterView:
    """The cluster as it is stored."""
    found = []
    for kind, path in LISTS:
        found += [{**one, "kind": kind} for one in api.read(path)["items"]]
    return view_of(*found)


def pod_for(world: World) -> Object:
    """A pod on the node of a world that uses all its claims."""
    here = {"key": "metadata.name", "operator": "In", "values": [world.node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    names = (made["metadata"]["name"] for made in world.claims)
    return pod(world.node, *names, affinity=affinity, tolerations=[{"operator": "Exists"}])


def seen(one: Object) -> Outcome | None:
    """What the scheduler has done with a pod; None if it has not come to it."""
    if one["spec"].get("nodeName"):
        return Outcome.FREE
    for condition in one.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            failed = condition.get("reason") == "SchedulerError"
            return Outcome.FAILS if failed else Outcome.WAITS
    return None


def outcomes(api: ApiServer, said: dict[str, Explanation]) -> dict[str, Outcome | None]:
    """What has become of the pods, once all is as it was said, or nothing changes any more."""
    end = time.monotonic() + 60
    while True:
        pods = {
            one["metadata"]["name"]: one
            for one in api.read("/api/v1/namespaces/default/pods")["items"]
        }
        found = {name: seen(pods[name]) for name in said}
        is_known = all(found.values())
        agrees = is_known and all(found[name] is said[name].outcome for name in said)
        if agrees or time.monotonic() > end:
            return found
        time.sleep(0.5)


def allocations(api: ApiServer) -> dict[str, list[tuple[str, str]]]:
    """Requests and devices of each claim."""
    return {
        f"default/{one['metadata']['name']}": [
            (result["request"], result["device"])
            for result in one.get("status", {})
            .get("allocation", {})
            .get("devices", {})
            .get("results", ())
        ]
        for one in api.read("/apis/resource.k8s.io/v1/resourceclaims")["items"]
    }


def main(version: str = DEFAULT, cases: str = str(CASES)) -> int:
    """Print a line for each case in which they differ, and the numbers; returns 1 if there is one.

    Args:
        version: Of Kubernetes.
        cases: How many.
    """
    is_new = not version.startswith("1.34")
    worlds = [Maker(seed, shares=is_new).world() for seed in range(int(cases))]
    with scheduler(version) as api:
        api.create(class_())
        at_once(lambda one: store(api, one), (node(world.node) for world in worlds))
        for part in ("slices", "others", "claims"):
            at_once(
                lambda one: store(api, one),
                (one for world in worlds for one in getattr(world, part)),
            )
        cluster = view(api)
        started = time.monotonic()
        said = {
            world.node: explain_pod(Pod.model_validate(pod_for(world)), cluster) for world in worlds
        }
        seconds = time.monotonic() - started
        at_once(lambda one: api.create(without_uid(one)), map(pod_for, worlds))
        done = outcomes(api, said)
        given = allocations(api)
        pods = {
            one["metadata"]["name"]: one
            for one in api.read("/api/v1/namespaces/default/pods")["items"]
        }
    return _print(said, done, given, pods, seconds=seconds)


def _print(
    said: dict[str, Explanation],
    done: dict[str, Outcome | None],
    given: dict[str, list[tuple[str, str]]],
    pods: dict[str, Any],
    *,
    seconds: float,
) -> int:
    del given
    differing = [name for name, one in said.items() if one.outcome is not done[name]]
    for name in differing:
        print(f"{name}: explain says {said[name].outcome}: {said[name].sentence}")
        print(f"  the scheduler: {done[name]}: {pods[name]['status'].get('conditions')}")
    numbers = Counter(f"{one.outcome}" for one in said.values())
    print(f"said: {dict(sorted(numbers.items()))}, in {seconds:.1f} s")
    print(f"cases: {len(said)}, in which the scheduler does otherwise: {len(differing)}")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
