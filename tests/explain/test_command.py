"""`kubectl npu` against an API server: outputs, rights, errors, and what it follows."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.explain.reasons import held, npu
from dev.explain.scene import scene
from dev.explain.static_api import StaticApi, served
from dev.explain.world import Wire, ask, claim, class_, device, node, pod, slice_
from tests.explain.test_apart import EXPENSIVE
from trio_npu_dra.tools.cli.kubectl_npu import main
from trio_npu_dra.tools.cluster.cel import apart

ROLE = Path(__file__).parents[2] / "k8s/kubectl-npu/viewer.yaml"


@dataclass(frozen=True)
class Cluster:
    """An API server, and the command that asks it."""

    api: StaticApi
    kubeconfig: Path
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        """The exit status, stdout and stderr of `kubectl npu`."""
        status = main([*words, "--kubeconfig", str(self.kubeconfig)])
        return status, *self.capsys.readouterr()

    def data(self, *words: str) -> Any:
        """What `-o json` prints."""
        status, out, _ = self.run(*words, "-o", "json")
        assert status == 0
        return json.loads(out)


@pytest.fixture
def cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """The scene of the page; what the caller's environment says of colours does not count."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    api = StaticApi(scene())
    with served(api, tmp_path) as kubeconfig:
        yield Cluster(api, kubeconfig, capsys)


def test_json_and_yaml_are_the_same(cluster: Cluster) -> None:
    """Free, used and unhealthy NPUs, and their holders."""
    data = cluster.data()
    _, out, _ = cluster.run("-o", "yaml")

    assert yaml.safe_load(out) == data
    n1, n2 = data["nodes"]
    assert [(one["free"], one["used"], one["unhealthy"]) for one in (n1, n2)] == [
        (2, 6, 0),
        (3, 1, 1),
    ]
    assert n2["devices"][3]["heldBy"][0]["pods"] == ["eval-0"]
    assert [(ring["size"], ring["free"]) for ring in n1["rings"]] == [(4, 0), (4, 2)]
    assert (n1["devices"][5]["ring"], n1["devices"][5]["numaNode"]) == ("ring-1", 1)


def test_an_explanation_as_data(cluster: Cluster) -> None:
    """The steps are there with their losses."""
    data = cluster.data("explain", "pod/large")

    (request,) = data["claims"][0]["requests"]
    assert data["outcome"] == "waits"
    assert [step["left"] for step in request["steps"]] == [12, 12, 12, 8, 8, 2]
    assert request["firstTooFew"] == 5
    assert len(data["helps"]) == 3


def test_a_claim_for_countless_devices_is_explained(cluster: Cluster) -> None:
    """What would help is not tried with each smaller number."""
    cluster.api.objects.append(claim("greedy", ask(count=2**63 - 1)))
    assert "3 instead of 9223372036854775807" in cluster.run("explain", "claim/greedy")[1]


def test_an_expensive_selector_is_undecided(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server accepts it, and the library would need a minute for each device."""
    monkeypatch.setattr(apart, "SECONDS", 2)
    cluster.api.objects.append(claim("expensive", ask(EXPENSIVE)))

    data = cluster.data("explain", "claim/expensive")

    assert data["outcome"] == "undecided"
    assert data["sentence"].startswith("the CEL takes more than 2 s or 1 GiB")


def test_colours_are_for_terminals(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a pipe goes plain text, unless colours are asked for."""
    _, plain, _ = cluster.run("-o", "wide")
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, coloured, _ = cluster.run("-o", "wide")

    assert "used, unhealthy" in plain
    assert "\x1b" not in plain
    assert "\x1b[1;31munhealthy\x1b[0m" in coloured


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_a_reader_that_has_seen_enough_is_no_error(
    cluster: Cluster, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `| head` ends before the command; nothing is said."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert cluster.run("-o", form) == (1, "", "")


def test_control_characters_do_not_reach_the_terminal(cluster: Cluster) -> None:
    """Else the writer of an Event could write to the screen, and forge lines."""
    event = next(one for one in cluster.api.objects if one["kind"] == "Event")
    event["message"] = "npu-3: \x1b[2J\nnpu-3 of n2 is not unhealthy"

    _, out, _ = cluster.run("why-unhealthy", "n2/npu-3")

    assert "npu-3: \\u001b[2J\\nnpu-3 of n2 is not unhealthy (2 times)" in out


def test_control_characters_of_errors_do_not_reach_the_terminal(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words are those of the server, or of a proxy."""
    refusal = {"kind": "Status", "message": "no\x1b]0;owned\x07\u202e"}
    monkeypatch.setattr(StaticApi, "answer", lambda *_: (403, refusal))

    _, _, err = cluster.run()

    assert err == "kubectl npu: list resourceslices: no\\u001b]0;owned\\u0007\\u202e (HTTP 403)\n"


def test_many_slices_come_in_pages(cluster: Cluster) -> None:
    """More than one answer of the API server has."""
    cluster.api.objects += [slice_(f"m{at}-0", npu(0), node=f"m{at:02}") for at in range(23)]

    assert len(cluster.data()["nodes"]) == 25


def test_missing_rights_are_named(cluster: Cluster) -> None:
    """It answers with less rights, and never claims to have weighed what it has not seen."""
    cluster.api.forbidden = frozenset({"nodes", "pods", "events"})

    doubts = cluster.data("explain", "large")["notWeighed"]
    status, _, err = cluster.run("why-unhealthy", "n2/npu-3")

    assert [doubt.partition(":")[0] for doubt in doubts] == [
        "labels, taints and resources of nodes",
        "what other pods use of resources",
        "Events",
    ]
    assert (status, err) == (0, "")


def test_labels_of_nodes_are_read(cluster: Cluster) -> None:
    """No node has the one that the pod wants, and nothing is left unweighed."""
    cluster.api.objects.append(pod("picky", nodeSelector={"disk": "none"}))
    found = cluster.data("explain", "pod/picky")
    assert (found["outcome"], found["notWeighed"]) == ("waits", [])


@pytest.mark.parametrize(
    "words",
    [(), ("-o", "wide"), ("node", "n1"), ("explain", "large"), ("why-unhealthy", "n2/npu-3")],
)
def test_unreadable_objects_are_named(cluster: Cluster, words: tuple[str, ...]) -> None:
    """One claim of any tenant does not end the command for all users."""
    huge = claim("huge", ask())
    huge["metadata"]["namespace"] = "evil"
    opaque = {"driver": "mine.example.com", "parameters": {"a": [1] * 5000}}
    huge["spec"]["devices"]["config"] = [{"opaque": opaque} for _ in range(32)]
    cluster.api.objects.append(huge)

    status, out, _ = cluster.run(*words)
    *_, line = cluster.data(*words)["notWeighed"]

    assert status == 0
    assert line in out
    assert line.startswith("ResourceClaim evil/huge cannot be read, so what it holds looks free: ")
    assert line.endswith("at most 100000 are read")


def test_null_is_an_empty_list(cluster: Cluster) -> None:
    """API servers write the requests of a claim without requests so."""
    idle = claim("idle")
    idle["spec"]["devices"]["requests"] = None
    cluster.api.objects.append(idle)

    assert cluster.data()["notWeighed"] == []


def test_pods_that_cannot_be_read_are_counted(cluster: Cluster) -> None:
    """An explanation names some of them."""
    for number in range(8):
        hog = pod(f"hog-{number}", "none")
        hog["spec"]["containers"] = [{"name": "c", "resources": []}]
        cluster.api.objects.append(hog)

    *named, more = cluster.data("explain", "large")["notWeighed"]

    looks = "so what it uses looks free: spec.containers.0.resources"
    assert [line.partition(looks)[0] for line in named] == [
        f"Pod default/hog-{number} cannot be read, " for number in range(5)
    ]
    assert more == "3 more pods that cannot be read"


def test_the_namespace_of_what_cannot_be_read_counts(cluster: Cluster) -> None:
    """A claim of that name elsewhere is not taken for the only one."""
    claim = held(0, name="train")
    claim["metadata"]["namespace"] = "evil"
    claim["spec"] = []
    cluster.api.objects.append(claim)

    status, _, err = cluster.run("explain", "claim/train", "-A")

    assert status == 1
    assert "2 namespaces have a claim train" in err
    assert "default, evil" in err


def test_without_the_right_to_see_claims_it_is_an_error(cluster: Cluster) -> None:
    """The holders are unknown then."""
    cluster.api.forbidden = frozenset({"resourceclaims"})

    status, out, err = cluster.run()

    assert (status, out) == (1, "")
    assert "you cannot list resourceclaims" in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("explain", "nobody"), 1, "there is no pod and no claim nobody in namespace default"),
        (("explain", "claim/nobody"), 1, "there is no claim nobody in namespace default"),
        (("explain", "node/n1"), 2, "only pod/NAME and claim/NAME can be explained"),
        (("explain",), 2, "`explain` needs a name"),
        (("list", "n1"), 2, "`list` takes no name: `kubectl npu node n1` shows one node"),
        (("node", "n3"), 1, "node n3 has no devices of npu.huawei.com"),
        (
            ("why-unhealthy", "npu-0"),
            1,
            "2 nodes have a device npu-0; say which: n1/npu-0, n2/npu-0",
        ),
        (
            ("why-unhealthy", "npu-9"),
            1,
            "no device npu-9 is published, and no partition of that name is held",
        ),
    ],
)
def test_errors_say_what_to_do(
    cluster: Cluster, words: tuple[str, ...], code: int, said: str
) -> None:
    """One line; the exit code tells a wrong command line from a name that the cluster lacks."""
    status, out, err = cluster.run(*words)

    assert (status, out) == (code, "")
    assert said in err


def test_a_healthy_device_is_not_called_unhealthy(cluster: Cluster) -> None:
    """It says so, with the holder."""
    _, out, _ = cluster.run("why-unhealthy", "n1/npu-4")

    assert out.splitlines()[0] == "npu-4 of n1 is not unhealthy: no taint keeps claims away"
    assert "claim default/infer (pod infer-0)" in out


def test_a_leaving_npu_is_not_called_unhealthy(cluster: Cluster) -> None:
    """It goes to a device plugin resource once its shares are released; no claim gets it."""
    leaving = npu(0, taints=[{"key": "npu.huawei.com/leaving", "effect": "NoSchedule"}])
    cluster.api.objects += [slice_("n3-0", leaving, node="n3")]

    _, out, _ = cluster.run("why-unhealthy", "n3/npu-0")
    *_, row = cluster.data()["nodes"]

    assert out.startswith(
        "npu-0 of n3 is not unhealthy, and no claim gets it: npu.huawei.com/leaving:NoSchedule\n"
    )
    assert (row["free"], row["unhealthy"], row["devices"][0]["unhealthy"]) == (0, 0, False)


def test_the_namespace_is_asked_whether_it_allows_admin_access(cluster: Cluster) -> None:
    """Only if a claim in it wants to look on; without the right that is not weighed."""
    namespace: Wire = {"kind": "Namespace", "metadata": {"name": "default"}}
    looking = [claim("look", ask(adminAccess=True)), pod("look", "look"), namespace]
    cluster.data("explain", "pod/large")
    assert ("get", "namespaces") not in cluster.api.asked

    cluster.api.objects += looking
    assert "wants admin access" in cluster.data("explain", "pod/look")["sentence"]
    namespace["metadata"]["labels"] = {"resource.kubernetes.io/admin-access": "true"}
    assert cluster.data("explain", "pod/look")["outcome"] == "free"
    cluster.api.forbidden = frozenset({"namespaces"})
    told = cluster.data("explain", "pod/look")
    assert told["notWeighed"] == [
        "whether namespace default may have admin access: you may not get namespaces"
    ]


def test_partitions_and_other_drivers(cluster: Cluster) -> None:
    """A partition that is held makes its NPU used; other drivers' devices come with `--driver`."""
    counters = [{"name": "npu-0", "counters": {"ai-cores": {"value": "20"}}}]

    def takes(amount: str) -> dict[str, Any]:
        used = {"counterSet": "npu-0", "counters": {"ai-cores": {"value": amount}}}
        return {"consumesCounters": [used]}

    partition = npu(0, **takes("10"))
    partition["name"], partition["attributes"]["type"] = "npu-0-vnpu-1", {"string": "vnpu"}
    claim = held(0, name="infer")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    result["device"] = "npu-0-vnpu-1"
    nic = slice_("nic", device("npu-7"), driver="nic.example.com", pool="nics")
    cluster.api.objects[:] = [
        *(node("n1"), class_(), claim, nic),
        slice_("s0", count=2, sharedCounters=counters),
        slice_("s1", npu(0, **takes("20")), partition, count=2),
    ]

    (row,) = cluster.data()["nodes"]
    (other,) = cluster.data("--driver", "nic.example.com")["nodes"]

    assert [(one["name"], one["state"]) for one in row["devices"]] == [
        ("npu-0", "shared"),
        ("npu-0-vnpu-1", "used"),
    ]
    assert (row["total"], row["used"]) == (1, 1)
    assert [one["name"] for one in other["devices"]] == ["npu-7"]
    facts = ("model", "memory", "ring", "numaNode")
    assert [other["devices"][0][fact] for fact in facts] == [None] * 4


def test_a_pool_that_is_not_complete_is_said_to_be(cluster: Cluster) -> None:
    """Its devices look free, and schedulers allocate none of them."""
    cluster.api.objects += [slice_("n3-0", npu(0), node="n3", count=2)]

    _, out, _ = cluster.run()
    *_, row = cluster.data()["nodes"]

    flaw = "of pool n3 of npu.huawei.com only 1 of its 2 slices are published"
    assert out.endswith(
        f"\nno devices are allocated here (Kubernetes 1.36 and later)\n  n3: {flaw}\n"
    )
    assert row["flaws"] == [flaw]


def watched(cluster: Cluster, change: Callable[[], object]) -> tuple[str, str]:
    """What a watch prints on stdout and stderr; *change* comes after its first answer.

    After the second answer it may not read any more, and ends.
    """

    def act() -> None:
        assert cluster.api.watched.acquire(timeout=10)
        change()
        cluster.api.changed.release()
        assert cluster.api.watched.acquire(timeout=10)
        cluster.api.forbidden = frozenset({"resourceslices"})
        cluster.api.changed.release()

    thread = threading.Thread(target=act)
    thread.start()
    status, out, err = cluster.run("-w")
    thread.join()
    assert status == 1
    return out, err


def test_watching_prints_again_when_it_changes(cluster: Cluster) -> None:
    """The second answer comes after the change."""

    def change() -> None:
        kept = [one for one in cluster.api.objects if one["metadata"]["name"] != "eval"]
        cluster.api.objects[:] = kept

    out, err = watched(cluster, change)

    assert "you cannot list resourceslices" in err
    assert out.count("NODE  NPUS") == 2
    assert out.count("claim default/eval") == 1


def test_watching_goes_on_after_a_slice_that_cannot_be_read(cluster: Cluster) -> None:
    """Any driver may write one: the next answer names it."""
    torn = slice_("other", driver="gpu.example.com")
    torn["spec"]["pool"] = "n1"
    cluster.api.changed_slice = torn

    out, err = watched(cluster, lambda: cluster.api.objects.append(torn))

    assert err == "kubectl npu: list resourceslices: you cannot list resourceslices (HTTP 403)\n"
    assert out.count("ResourceSlice other cannot be read") == 1


def test_it_asks_for_no_more_than_the_role_allows(cluster: Cluster) -> None:
    """Only reading, and only what the manifest names."""
    for words in ((), ("node", "n1"), ("explain", "large"), ("why-unhealthy", "n2/npu-3")):
        assert cluster.run(*words)[0] == 0

    role = yaml.safe_load(ROLE.read_text(encoding="utf-8"))
    allowed = {
        (verb, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert cluster.api.asked <= allowed
    assert {verb for verb, _ in allowed} == {"get", "list", "watch"}
