"""The driver is updated while pods come and go; or fails to be."""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import COMMAND, DRIVER, NAME, NAMESPACE, PLUGIN, Driver
from dev.cluster.processes import ClusterError
from tests.e2e.space import Space, claim, claim_template, container, pod

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

REGISTRY = Path("/var/lib/kubelet/plugins_registry")
UPDATES = 3
"""One after the other, each in some 20 seconds."""
PACE = 0.5
"""Seconds from one pod of the stream to the next."""
AT_ONCE = 4
"""Pods of the stream at most, so that none waits for an NPU on a slow machine."""
SHORT_LIFE = ("sh", "-c", "date +%s.%N; sleep 0.5")
ALLOWED = ("FailedScheduling: ", "no relationship found between node")
"""Warnings that a pod may get: all NPUs are in use when it comes; or the kubelet asks for its claim
before the API server's node authorizer has seen that the pod is this node's."""

SPEC = "/spec/template/spec/containers/0"
NEVER_READY = [
    {"op": "replace", "path": f"{SPEC}/readinessProbe/httpGet/path", "value": "/never"},
    # Another version, with other things to say of the NPUs: their NUMA nodes are unknown.
    {"op": "add", "path": f"{SPEC}/args/-", "value": "--sysfs-root=/host/sys"},
]
NOT_THE_DRIVER = [{"op": "replace", "path": f"{SPEC}/image", "value": "docker.io/library/ubuntu"}]


# --- a stream of pods ----------------------------------------------------------------------------


def short_pod(name: str) -> Object:
    """A pod that says when it runs, and ends by itself soon after."""
    made = pod(name, containers=[container("main", "npu", command=SHORT_LIFE)])
    made["spec"]["resourceClaims"] = [{"name": "npu", "resourceClaimTemplateName": "npu"}]
    # The kubelet gives a ConfigMap of that volume a second to come, and warns if it is late.
    made["spec"]["automountServiceAccountToken"] = False
    return made


def unfinished(space: Space) -> list[str]:
    """Names of the pods of the stream that have not ended yet; none may have failed."""
    pods = space.cluster.objects("pods", namespace=space.name)
    phases = {item["metadata"]["name"]: item["status"]["phase"] for item in pods}
    assert "Failed" not in phases.values(), phases
    return [name for name, phase in phases.items() if phase != "Succeeded"]


def send(space: Space, names: Iterator[str], until: Callable[[Sequence[str]], bool]) -> list[str]:
    """Create one pod after another until that is true of those that were sent; returns them."""
    sent: list[str] = []
    while not until(sent):
        due = time.monotonic() + PACE
        if len(unfinished(space)) < AT_ONCE:
            sent.append(next(names))
            space.apply(short_pod(sent[-1]))
        time.sleep(max(0.0, due - time.monotonic()))  # the pace is what is tested
    return sent


def created(space: Space, since: int) -> dict[str, float]:
    """When the API server was asked for each pod of the namespace, by the pod's name."""
    with space.cluster.audit_log.open("rb") as log:
        log.seek(since)
        events = [json.loads(line) for line in log if line.endswith(b"\n")]
    return {
        about["name"]: datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        for event in events
        if event["responseStatus"].get("code") == 201
        and (about := event.get("objectRef", {})).get("resource") == "pods"
        and about.get("namespace") == space.name
        and "subresource" not in about
    }


def ran(space: Space, name: str) -> float:
    """When the program of a pod of the stream ran."""
    (log,) = space.cluster.node.pod_logs.glob(f"{space.name}_{name}_*/main/0.log")
    return float(log.read_text().split()[3])


def distribution(title: str, seconds: Sequence[float]) -> str:
    """A line for the notes."""
    p90 = statistics.quantiles(seconds, n=10, method="inclusive")[8]
    return (
        f"{title:28} n={len(seconds):3}  p50 {statistics.median(seconds):5.2f} s  "
        f"p90 {p90:5.2f} s  max {max(seconds):5.2f} s"
    )


def warnings(space: Space) -> list[str]:
    """What went wrong with pods of the namespace, if something did."""
    events = space.cluster.objects("events", namespace=space.name)
    said = [f"{it['reason']}: {it['message']}" for it in events if it["type"] == "Warning"]
    return [text for text in said if not any(allowed in text for allowed in ALLOWED)]


# --- instances -----------------------------------------------------------------------------------


def sockets(driver: Driver) -> set[str]:
    """Names of all sockets on the node that are the driver's."""
    root = driver.cluster.node.root
    folders = (root / PLUGIN.relative_to("/"), root / REGISTRY.relative_to("/"))
    return {path.name for folder in folders for path in folder.glob("*.sock")}


def sockets_of(instance: Object) -> set[str]:
    """Names of the sockets that a pod of the driver has."""
    uid = instance["metadata"]["uid"]
    return {f"control-{uid}.sock", f"dra-{uid}.sock", f"{DRIVER}-{uid}-reg.sock"}


def newest(driver: Driver) -> Object:
    """The youngest pod of the driver."""
    pods = driver.cluster.objects("pods", namespace=NAMESPACE, selector=f"app={NAME}")
    return max(pods, key=lambda item: str(item["metadata"]["creationTimestamp"]))


@contextmanager
def failing_update(driver: Driver, change: Sequence[Object]) -> Iterator[None]:
    """An update that is begun, and taken back at the end."""
    place = (f"daemonset/{NAME}", "--namespace", NAMESPACE)
    before = driver.wait_ready()["metadata"]["uid"]
    driver.cluster.kubectl("patch", *place, "--type=json", "--patch", json.dumps(change))
    try:
        driver.cluster.wait(
            lambda: newest(driver)["metadata"]["uid"] != before, "the new pod of the driver"
        )
        yield
    finally:
        driver.cluster.kubectl("rollout", "undo", *place)
        driver.wait_rolled_out()


def wait_waiting(driver: Driver) -> None:
    """Wait until the newest instance waits for the owner of the node."""

    def waits() -> bool:
        with suppress(ClusterError):  # its container has not started
            return "waiting for the instance that serves this node" in driver.said(newest(driver))
        return False

    driver.cluster.wait(waits, "the new instance waits for the owner")


def wait_not_started(driver: Driver) -> None:
    """Wait until the kubelet has found that the newest instance cannot be started."""

    def reason() -> str:
        (state,) = newest(driver)["status"].get("containerStatuses", [{}])
        return str(state.get("state", {}).get("waiting", {}).get("reason", ""))

    driver.cluster.wait(
        lambda: reason() in {"RunContainerError", "CrashLoopBackOff"}, "a container that fails"
    )


# --- tests ---------------------------------------------------------------------------------------


def test_pods_do_not_notice_an_update(driver: Driver, space: Space, notes: list[str]) -> None:
    """Under a stream of pods no prepare fails; no slice is written, no old socket is left."""
    old, versions, mark = driver.wait_ready(), driver.versions(), driver.cluster.audit_mark()
    names = (f"pod-{number}" for number in itertools.count())
    space.apply(claim_template("npu", claim("npu")))

    before = send(space, names, lambda sent: len(sent) == 20)

    def update() -> None:
        for _ in range(UPDATES):
            driver.restart()

    with ThreadPoolExecutor(1) as beside:
        rollout = beside.submit(update)
        during = send(space, names, lambda _: rollout.done())
        rollout.result()
    space.wait(lambda: not unfinished(space), "all pods of the stream ended")

    asked = created(space, mark)
    for title, sent in (("before the update", before), ("during the update", during)):
        waits = [ran(space, name) - asked[name] for name in sent]
        notes.append(distribution(f"pod created to running, {title}", waits))
    new = driver.wait_ready()
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert sockets(driver) == sockets_of(new)
    assert warnings(space) == []
    assert driver.versions() == versions
    assert driver.writes(mark) == []


@pytest.mark.parametrize(
    ("change", "wait_begun"),
    [
        pytest.param(NEVER_READY, wait_waiting, id="is never ready"),
        pytest.param(NOT_THE_DRIVER, wait_not_started, id="does not start"),
    ],
)
def test_update_that_fails_changes_nothing(
    driver: Driver,
    space: Space,
    change: Sequence[Object],
    wait_begun: Callable[[Driver], None],
) -> None:
    """The old instance serves on, slices stay as they are, and the update can be taken back."""
    old, versions, mark = driver.wait_ready(), driver.versions(), driver.cluster.audit_mark()

    with failing_update(driver, change):
        wait_begun(driver)
        space.start("during")
        assert len(space.seen_npus("during")) == 1
        space.delete_pod("during")

    after = driver.wait_ready()
    assert after["metadata"]["uid"] == old["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert sockets(driver) == sockets_of(old)
    space.start("later")
    assert driver.versions() == versions
    assert driver.writes(mark) == []


def pid_of(instance: Object) -> int:
    """Process id of the daemon in a pod of the driver, as this machine numbers processes."""
    uid = instance["metadata"]["uid"]
    names = [name.encode() for name in (uid, uid.replace("-", "_"))]  # systemd has no dash
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            group = (process / "cgroup").read_bytes()
            if COMMAND in (process / "cmdline").read_bytes() and any(it in group for it in names):
                return int(process.name)
    raise AssertionError(f"no daemon runs in {instance['metadata']['name']}")


def test_a_killed_owner_is_replaced_while_an_update_is_never_ready(
    driver: Driver, space: Space
) -> None:
    """By the instance that waits, if that could serve; the roll-back replaces that one, too."""
    old = driver.wait_ready()
    with failing_update(driver, NEVER_READY):
        wait_waiting(driver)
        space.start("before")
        os.kill(pid_of(old), signal.SIGKILL)
        space.start("after")  # perhaps at the kubelet's second try
        space.delete_pod("before")
        space.delete_pod("after")
        assert len([name for name in sockets(driver) if name.startswith("dra-")]) == 1
    driver.wait_ready()
    driver.wait_without_traces()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_an_update_replaces_an_owner_that_dies_or_hangs(
    driver: Driver, space: Space, end: signal.Signals
) -> None:
    """Pods that start meanwhile run in the end; of a hung one the kubelet makes an end."""
    old = driver.wait_ready()
    space.start("before")
    os.kill(pid_of(old), end)
    driver.restart()
    space.start("after")
    assert set(space.allocated("before")).isdisjoint(space.allocated("after"))
    space.delete_pod("before")
    space.delete_pod("after")
    assert sockets(driver) == sockets_of(driver.wait_ready())
    driver.wait_without_traces()


def test_an_update_without_surge_loses_nothing(driver: Driver, space: Space) -> None:
    """The new instance finds the node without an owner; a pod runs on, and another starts then."""
    place = (f"daemonset/{NAME}", "--namespace", NAMESPACE)
    strategy = {"maxSurge": 0, "maxUnavailable": 1}
    change = {"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": strategy}}}
    back = {"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}}
    space.start("before")
    driver.cluster.kubectl("patch", *place, "--patch", json.dumps(change))
    try:
        driver.restart()
        assert "waiting for the instance" not in driver.said(driver.wait_ready())
        space.start("after")
    finally:
        driver.cluster.kubectl("patch", *place, "--patch", json.dumps(back))
    space.delete_pod("before")
    space.delete_pod("after")
    driver.wait_without_traces()
