"""Does the real scheduler do what `explain` says? `python -m dev.explain.agreement [VERSION]`.

A control plane without kubelets gets random pools and claims, each on a node of its own, and what
`dev.explain.reasons` has. First `explain` says of each pod whether it can have its claims; then
the pods are created. The exit status is 1 if the scheduler does otherwise.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from dev.cluster.api import ApiServer, NotThere, Object
from dev.cluster.control_plane import ControlPlane
from dev.cluster.processes import ClusterError, wait_until
from dev.cluster.releases import DEFAULT
from dev.explain.random_worlds import NEWER, Maker, World
from dev.explain.reasons import REASONS, Reason
from dev.explain.selectors import ADMITTING, FAILING, NPU
from dev.explain.world import DRIVER, ask, claim, class_, node, pod, slice_, view_of
from trio_npu_dra.tools.cluster.explain.answer import Explanation, explain_pod
from trio_npu_dra.tools.cluster.inventory import ClusterView
from trio_npu_dra.tools.cluster.objects import Pod
from trio_npu_dra.tools.cluster.said import Outcome

CASES: Final = 300
RESOURCE: Final = "huawei.com/Ascend910"
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
            version=version,
            folder=folder / "plane",
            logs=folder,
        )
        try:
            wait_until(lambda: _has_account(plane.api), "the service account", timeout=30)
            yield plane.api
        finally:
            plane.stop()


def _has_account(api: ApiServer, namespace: str = "default") -> bool:
    try:
        api.read(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
    except NotThere:
        return False
    return True


def at_once(work: Callable[[Object], object], objects: Iterable[Object]) -> None:
    """Do it for all objects, several at a time."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, objects))


def store(api: ApiServer, about: Object) -> None:
    """Create an object with its status."""
    namespace = about["metadata"].get("namespace", "default")
    api.create(without_uid(about), namespace=namespace)
    kind, name, status = about["kind"], about["metadata"]["name"], about.get("status")
    if status is None or kind not in {"Node", "ResourceClaim", "Pod"}:
        return
    if kind == "Node":
        status = {**status, "capacity": status["allocatable"]}
    api.patch(kind, name, "status", change={"status": status}, namespace=namespace)


def without_uid(about: Object) -> Object:
    """The API server gives UIDs."""
    metadata = {key: value for key, value in about["metadata"].items() if key != "uid"}
    return {**about, "metadata": metadata}


def selector_worlds(*, is_new: bool) -> Iterator[World]:
    """A world with one device for each selector of the table that the API server must take."""
    for number, expression in enumerate((*ADMITTING, *(one for one, _ in FAILING))):
        if NEWER in expression and not is_new:
            continue
        name = f"selector-{number}"
        yield World(
            node=name,
            slices=(slice_(name, NPU, node=name),),
            others=(),
            claims=(claim(name, ask(expression)),),
        )


def storable(api: ApiServer, worlds: Iterable[World]) -> list[World]:
    """The worlds with claims that the API server takes; prints why it refuses the rest."""
    found = []
    for world in worlds:
        try:
            for one in world.claims:
                api.create(without_uid(one), dry_run=True)
        except ClusterError as refusal:
            print(f"{world.node}: {refusal}")
        else:
            found.append(world)
    return found


def view(api: ApiServer) -> ClusterView:
    """The cluster as it is stored."""
    found = []
    for kind, path in LISTS:
        found += [{**one, "kind": kind} for one in api.read(path)["items"]]
    return view_of(*found)


def part_of(cluster: ClusterView, world: World) -> ClusterView:
    """What matters to a pod that must be on one node: so each answer is quick.

    Older schedulers see pools with counters everywhere.
    """
    cut = {one.spec.pool.name for one in cluster.slices if one.spec.shared_counters}
    names = {one["metadata"]["name"] for one in (*world.others, *world.claims)}
    return replace(
        cluster,
        nodes=tuple(one for one in cluster.known_nodes if one.metadata.name == world.node),
        slices=tuple(
            one
            for one in cluster.slices
            if one.spec.node_name == world.node or one.spec.pool.name in cut
        ),
        claims=tuple(one for one in cluster.claims if one.metadata.name in names),
    )


def pod_for(world: World) -> Object:
    """A pod on the node of a world that uses all its claims."""
    here = {"key": "metadata.name", "operator": "In", "values": [world.node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    names = (made["metadata"]["name"] for made in world.claims)
    return pod(world.node, *names, affinity=affinity, tolerations=[{"operator": "Exists"}])


def seen(one: Object) -> Outcome | None:
    """The scheduler's decision about a pod; None if there is none yet."""
    if one["spec"].get("nodeName"):
        return Outcome.FREE
    for condition in one.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            failed = condition.get("reason") == "SchedulerError"
            return Outcome.FAILS if failed else Outcome.WAITS
    return None


def differing(said: dict[str, Explanation], done: dict[str, Outcome | None]) -> list[str]:
    """The pods with which the scheduler does otherwise; undecided ones are left to it."""
    return [
        name for name, one in said.items() if one.outcome not in {Outcome.UNDECIDED, done[name]}
    ]


def outcomes(api: ApiServer, said: dict[str, Explanation]) -> dict[str, Outcome | None]:
    """What has become of the pods, once all is as predicted, or nothing changes any more."""
    end = time.monotonic() + 60
    while True:
        pods = {
            one["metadata"]["name"]: one
            for one in api.read("/api/v1/namespaces/default/pods")["items"]
        }
        found = {name: seen(pods[name]) for name in said}
        is_settled = all(found.values()) and not differing(said, found)
        if is_settled or time.monotonic() > end:
            return found
        time.sleep(0.5)


def placed(reason: Reason, number: int) -> list[Object]:
    """The objects and the pod of a reason in a namespace, and on nodes, of its own."""
    prefix = f"reason-{number}"
    found = []
    for one in (*reason.objects, reason.pod):
        if one["kind"] == "DeviceClass":
            continue
        text = json.dumps(one)
        for name in ("n1", "n2", "s0", "s1", "s2"):
            text = text.replace(f'"{name}"', f'"{prefix}-{name}"')
        made = json.loads(text)
        made.get("status", {}).pop("reservedFor", None)  # no such pod: the claim would be freed
        if "namespace" in made["metadata"]:
            made["metadata"]["namespace"] = prefix
        found.append(made)
    names = [one["metadata"]["name"] for one in found if one["kind"] == "Node"]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": names}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
    waiting = found[-1]["spec"]
    waiting["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    }
    waiting["tolerations"] = [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists"}
        for state in ("not-ready", "unreachable")
    ]
    return found


def create_reasons(api: ApiServer, reasons: Sequence[tuple[int, Reason]]) -> None:
    """Create all of them, the pods that wait last."""
    names = [f"reason-{number}" for number, _ in reasons]
    for name in names:
        about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        api.ask("POST", "/api/v1/namespaces", about)
    for name in names:
        wait_until(partial(_has_account, api, name), "the service account", timeout=30)
    objects = [placed(reason, number) for number, reason in reasons]
    for kind in ("Node", "ResourceSlice", "DeviceTaintRule", "ResourceClaim", "Pod"):
        at_once(
            lambda one: store(api, one),
            (one for made in objects for one in made if one["kind"] == kind),
        )


def reasons_kept(api: ApiServer, reasons: Sequence[tuple[int, Reason]]) -> int:
    """Print what both say of each; returns how many pods the scheduler has not kept waiting."""
    wrong = 0
    for number, reason in reasons:
        one = api.read(f"/api/v1/namespaces/reason-{number}/pods/train")
        found = seen(one)
        fails = reason.outcome is Outcome.FAILS
        is_right = found is Outcome.FAILS if fails else found is not Outcome.FREE
        wrong += not is_right
        said = [
            condition.get("message", "")
            for condition in one["status"].get("conditions", ())
            if condition["type"] == "PodScheduled"
        ]
        print(f"{reason.title}{'' if is_right else ': THEY DIFFER'}")
        print(f"  explain:   {reason.explained().sentence}")
        print(f"  scheduler: {' '.join(said) or '(nothing)'}")
    return wrong


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def main(version: str = DEFAULT) -> int:
    """Print what differs, what both say of the reasons, and the numbers; returns 1 if any does."""
    is_new = not version.startswith("1.34")
    worlds = [Maker(seed, shares=is_new).world() for seed in range(CASES)]
    reasons = [
        (number, reason)
        for number, reason in enumerate(REASONS)
        if _parts(reason.since) <= _parts(version)
    ]
    with scheduler(version) as api:
        offered = list(selector_worlds(is_new=is_new))
        selectors = storable(api, offered)
        worlds += selectors
        api.create(class_(DRIVER, **({"extendedResourceName": RESOURCE} if is_new else {})))
        at_once(lambda one: store(api, one), (node(world.node) for world in worlds))
        for part in ("slices", "others", "claims"):
            at_once(
                lambda one: store(api, one),
                (one for world in worlds for one in getattr(world, part)),
            )
        cluster = replace(view(api), minor=int(version.split(".")[1]))
        started = time.monotonic()
        said = {
            world.node: explain_pod(Pod.model_validate(pod_for(world)), part_of(cluster, world))
            for world in worlds
        }
        seconds = time.monotonic() - started
        create_reasons(api, reasons)
        at_once(lambda one: api.create(without_uid(one)), map(pod_for, worlds))
        done = outcomes(api, said)
        wrong = reasons_kept(api, reasons)
        others = differing(said, done)
        for name in others:
            about = api.read(f"/api/v1/namespaces/default/pods/{name}")["status"]
            print(f"{name}: explain says {said[name].outcome}: {said[name].sentence}")
            print(f"  the scheduler: {done[name]}: {about.get('conditions')}")
    numbers = Counter(f"{one.outcome}" for one in said.values())
    print(f"explain says {dict(sorted(numbers.items()))}, in {seconds:.1f} s")
    print(f"reasons: {len(reasons)}, the scheduler differs on {wrong}")
    refused = len(offered) - len(selectors)
    print(f"selectors that the API server refuses: {refused}")
    print(f"random claims and selectors: {len(said)}, the scheduler differs on {len(others)}")
    return int(wrong + len(others) + refused > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
