"""Jobs of many pods on three nodes: where they come to, and the rank tables that they read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain

import pytest
import yaml

from dev.cluster.api import Object
from dev.cluster.cluster import APART, Cluster, NodeAccess
from dev.cluster.driver import IMAGE, Driver
from tests.e2e import test_workloads
from tests.e2e.boards import clear, laid_out
from tests.e2e.labels import labelled
from tests.e2e.space import EXAMPLES, Space, claim, placed, pod, request
from tests.ranktable.hccl import load
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.lab.simulator import load_profile

pytestmark = pytest.mark.cluster

A3, MODULES = load_profile("a3-16"), 8
ALONE, SUPER_POD = 8, 7
"""The super pod of the first node, and that of both others."""


@contextmanager
def open_to_all(cluster: Cluster) -> Iterator[None]:
    """Pods need no toleration for the further nodes."""
    further = [node.name for node in cluster.nodes[1:]]
    for name in further:
        cluster.api.patch("node", name, change={"spec": {"taints": None}})
    yield
    for name in further:
        cluster.api.patch("node", name, change={"spec": {"taints": [APART]}})


@pytest.fixture(scope="module")
def driver(driver: Driver, second_node: NodeAccess, third_node: NodeAccess) -> Iterator[Driver]:
    """On each node are eight modules of an A3, and what says in which super pod they are."""
    cluster = driver.cluster
    with ExitStack() as stack:
        stack.enter_context(labelled(driver))
        stack.enter_context(driver.away())
        clear(driver, load_profile("910b4-8"))
        for server, node in enumerate((driver.node, second_node, third_node)):
            where = ALONE if node is driver.node else SUPER_POD
            flags = f"--server={server}", f"--super-pod={where}"
            stack.enter_context(laid_out(driver, node, A3, *flags))
        stack.enter_context(open_to_all(cluster))
        yield driver


@pytest.fixture
def space(space: Space) -> Space:
    """A namespace whose pods may make rank tables."""
    space.apply_example("ranktable-account")
    return space


# --- jobs ----------------------------------------------------------------------------------------


def example(name: str, *, pods: int = 2, count: int | None = None) -> list[Object]:
    """An example with the driver's image, of so many pods with so many devices each."""
    text = (EXAMPLES / f"{name}.yaml").read_text()
    made = list(yaml.safe_load_all(text.replace("docker.io/library/dra-npu", f"docker.io/{IMAGE}")))
    for about in made:
        if about["kind"] == "Job":
            about["spec"] |= {"completions": pods, "parallelism": pods}
        elif about["kind"] == "ResourceClaimTemplate" and count is not None:
            about["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = count
    return made


def occupy(space: Space, node: NodeAccess, name: str, count: int) -> None:
    """A pod on that node holds so many modules."""
    space.apply(claim(name, request(count=count)), placed(pod(name, name), node))
    space.wait_phase(name)


def wait_started(space: Space, job: str, count: int = 2) -> list[Object]:
    """Wait until the programs of all pods of a job run; returns the pods."""

    def look() -> list[Object] | None:
        found = space.pods_of(job)
        started = [each for each in found if each["status"].get("phase") == "Running"]
        return found if len(started) == len(found) == count else None

    return space.wait(look, f"{count} pods of {job} run")


def has(space: Space, job: str, condition: str) -> bool:
    """Whether a Job is `Complete` or `Failed`; all its pods have ended then."""
    conditions = (space.get("job", job) or {})["status"].get("conditions", [])
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def nodes_of(pods: Sequence[Object]) -> list[str]:
    """Where they are."""
    return [str(each["spec"]["nodeName"]) for each in pods]


def read_table(space: Space, pods: Sequence[Object]) -> Object:
    """The table that each of these pods has read.

    It is one, HCCL takes it, and its ranks are the NPUs of these pods and no other, those of each
    pod together and in the order in which its programs count them.
    """

    def printed() -> str | None:
        texts = {space.log(each["metadata"]["name"], "main") for each in pods}
        return texts.pop() if len(texts) == 1 else None

    text = space.wait(printed, "the same table in the log of each pod, which has just begun to run")
    load(text, ChipFamily.ASCEND_910_A3)
    table: Object = json.loads(text)
    found = {
        int(device["rank_id"]): (server["server_id"], int(device["device_id"]))
        for server in table["server_list"]
        for device in server["device"]
    }
    ranks = [found[rank] for rank in range(len(found))]
    own = [own_ranks(space, each) for each in pods]
    for part in own:
        assert ranks[ranks.index(part[0]) :][: len(part)] == part
    assert sorted(chain.from_iterable(own)) == sorted(ranks)
    return table


def own_ranks(space: Space, about: Object) -> list[tuple[str, int]]:
    """The node, and the physical ids of the dies that a pod's program can open."""
    paths = space.davinci_nodes(about["metadata"]["name"], container="main")
    dies = sorted(int(path.removeprefix("/dev/davinci")) for path in paths)
    return [(about["spec"]["nodeName"], die) for die in dies]


def super_pods_of(table: Object) -> dict[str, int]:
    """How many servers each super pod of a table has."""
    return {each["super_pod_id"]: len(each["server_list"]) for each in table["super_pod_list"]}


def test_a_job_over_two_nodes_of_one_super_pod(driver: Driver, space: Space) -> None:
    """Only there is room for both pods, each of which gets the eight modules of a ring."""
    occupy(space, driver.node, "other", 1)
    space.apply(*example("job-over-nodes"))
    pods = wait_started(space, "job-over-nodes")
    assert len(set(nodes_of(pods))) == 2
    table = read_table(space, pods)
    assert super_pods_of(table) == {f"{SUPER_POD}": 2}
    assert {len(own_ranks(space, each)) for each in pods} == {2 * MODULES}
    space.delete("job", "job-over-nodes", foreground=True)


def test_two_pods_of_a_node_are_one_server(space: Space) -> None:
    """They come to one node, which is the only server of their table."""
    space.apply(*example("job-one-server"))
    pods = wait_started(space, "job-one-server")
    (node,) = set(nodes_of(pods))
    table = read_table(space, pods)
    assert [server["server_id"] for server in table["server_list"]] == [node]
    space.delete("job", "job-one-server", foreground=True)


@pytest.mark.since("1.36")
def test_a_job_that_counts_limits(space: Space) -> None:
    """Its pods get devices without claims of their own, and a table all the same."""
    (counted, _), job = example("extended-resource"), example("job-counted")
    space.apply(counted, *job)
    pods = wait_started(space, "job-counted")
    assert len(read_table(space, pods)["server_list"]) == len(set(nodes_of(pods)))
    space.delete("job", "job-counted", foreground=True)


def test_a_job_by_metadata(driver: Driver, space: Space) -> None:
    """Without any right in the API each pod knows the nodes and the devices of all."""
    space.apply(*test_workloads.example(space, "job-by-metadata"))
    space.wait(lambda: has(space, "job-by-metadata", "Complete"), "the Job done")
    pods = space.pods_of("job-by-metadata")
    (text,) = {space.log(each["metadata"]["name"], "main") for each in pods}
    told = json.loads(text)
    assert [each["node"] for each in told] == nodes_of(pods)
    found = [(each["node"], npu) for each in told for npu in each["npus"]]
    assert len({(node, npu["name"]) for node, npu in found}) == len(found) == 8
    for node in driver.cluster.nodes:
        published = dataclasses.replace(driver, node=node).devices()
        for npu in (npu for where, npu in found if where == node.name):
            assert npu["attributes"] == published[npu["name"]]["attributes"]
    space.delete("job", "job-by-metadata", foreground=True)


# --- where there is no room for all ---------------------------------------------------------------


def explained(space: Space, job: str) -> str:
    """The first line of what `kubectl npu explain` says of a job."""
    words = "npu", "explain", f"job/{job}", "--namespace", space.name
    return space.cluster.kubectl(*words).splitlines()[0]


def placed_pods(space: Space, job: str) -> list[Object]:
    """The pods of a job that have a node."""
    return [each for each in space.pods_of(job) if each["spec"].get("nodeName")]


def leave_room_for_five(space: Space) -> None:
    """Of six pods with two modules each five fit into one super pod, and nine into both."""
    _, second, _ = space.cluster.nodes
    occupy(space, second, "other", MODULES - 3)


def test_explain_says_how_many_pods_fit(driver: Driver, space: Space) -> None:
    """So many get a node, and all when there is room, as it predicts."""
    name, made = "job-over-nodes", example("job-over-nodes", pods=6, count=2)
    made[-1]["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/not-yet"}]
    occupy(space, driver.node, "elsewhere", MODULES - 1)
    leave_room_for_five(space)
    space.apply(*made)
    space.wait(lambda: len(space.pods_of(name)) == 6, "six pods")
    five = (
        f"job {space.name}/{name} waits: there is no room for its 6 pods in one super pod; "
        f"most, 5, fit in super pod {SUPER_POD}"
    )
    assert explained(space, name) == five
    for each in space.pods_of(name):
        space.ungate(each["metadata"]["name"])
    space.wait(lambda: len(placed_pods(space, name)) == 5, "five pods with a node")
    assert explained(space, name) == five

    space.delete_pod("other")
    pods = wait_started(space, name, 6)
    assert super_pods_of(read_table(space, pods)) == {f"{SUPER_POD}": 2}
    placed = f"its 6 pods with devices have nodes in super pod {SUPER_POD}"
    assert placed in explained(space, name)
    space.delete("job", name, foreground=True)


@pytest.mark.every_version
@pytest.mark.since("1.37")
def test_a_gang_starts_whole_in_one_super_pod_or_waits(space: Space) -> None:
    """None of its pods gets a node before there is room for all of them together."""
    leave_room_for_five(space)
    space.apply_text(yaml.safe_dump_all(example("job-gang", pods=6)))
    space.wait(lambda: refusal(space), "a PodGroup that has no room")
    assert placed_pods(space, "job-gang") == []
    space.delete_pod("other")
    pods = wait_started(space, "job-gang", 6)
    assert super_pods_of(read_table(space, pods)) == {f"{SUPER_POD}": 2}
    space.delete("job", "job-gang", foreground=True)


def refusal(space: Space) -> str:
    """Why the scheduler has not placed the PodGroup."""
    words = "get", "podgroup", "job-gang", "--namespace", space.name, "--output", "json"
    group = json.loads(space.cluster.kubectl(*words))
    found = {one["type"]: one for one in group.get("status", {}).get("conditions", [])}
    scheduled = found.get("PodGroupInitiallyScheduled", {"status": "Unknown"})
    return str(scheduled["message"]) if scheduled["status"] == "False" else ""
