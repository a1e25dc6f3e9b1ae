"""What `kubectl npu` may read, and what it says of what it may or can not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from dev.explain.reasons import DRAINED, held
from dev.explain.world import Wire, ask, claim, pod, taint_rule

if TYPE_CHECKING:
    from tests.explain.conftest import Cluster

ROLE = Path(__file__).parents[2] / "k8s/kubectl-npu/viewer.yaml"


def test_missing_rights_are_named(cluster: Cluster) -> None:
    """It answers with less rights, and never claims to have weighed what it has not seen."""
    cluster.api.forbidden = frozenset({"nodes", "pods", "events"})

    doubts = cluster.not_weighed("explain", "large")
    data = cluster.data("explain", "large")["notWeighed"]
    status, _, err = cluster.run("why-unhealthy", "n2/npu-3")

    assert [doubt.partition(":")[0] for doubt in doubts] == [
        "labels, taints and resources of nodes",
        "what other pods use of resources",
        "Events",
    ]
    assert data == [
        {"reason": "MayNotRead", "verb": "list", "resource": resource}
        for resource in ("nodes", "pods", "events")
    ]
    assert (status, err) == (0, "")


def test_taints_of_rules_are_weighed_as_far_as_they_can_be_read(cluster: Cluster) -> None:
    """A rule counts in each command; without the right, or of a form unknown here, it is named."""
    rule = taint_rule(DRAINED, pool="n1", device="npu-7")
    cluster.api.objects.append(rule)
    assert "maintenance" in cluster.data("explain", "large")["message"]
    assert cluster.data("why-unhealthy", "n1/npu-7")["device"]["unhealthy"]

    cluster.api.forbidden = frozenset({"devicetaintrules"})
    denied, said = cluster.data(), cluster.not_weighed()
    cluster.api.forbidden = frozenset()
    del rule["spec"]["taint"]["key"]
    (unread,) = cluster.not_weighed()

    assert said == ["DeviceTaintRules: you may not list devicetaintrules"]
    assert not any(one["unhealthy"] for one in denied["nodes"][0]["devices"])
    assert unread.startswith("DeviceTaintRule drain cannot be read, so its taint looks absent: ")


def test_labels_of_nodes_are_read(cluster: Cluster) -> None:
    """No node has the one that the pod wants, and nothing is left unweighed."""
    cluster.api.objects.append(pod("picky", nodeSelector={"disk": "none"}))
    found = cluster.data("explain", "pod/picky")
    assert (found["outcome"], found["notWeighed"]) == ("Waits", [])


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
    *_, unread = cluster.data(*words)["notWeighed"]
    error = unread.pop("error")

    assert status == 0
    assert f"ResourceClaim evil/huge cannot be read, so what it holds looks free: {error}" in out
    assert error.endswith("at most 100000 are read")
    assert unread == {"reason": "Unreadable", "kind": "ResourceClaim", "name": "evil/huge"}


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

    *named, more = cluster.not_weighed("explain", "large")
    *_, rest = cluster.data("explain", "large")["notWeighed"]

    looks = "so what it uses looks free: spec.containers.0.resources"
    assert [line.partition(looks)[0] for line in named] == [
        f"Pod default/hog-{number} cannot be read, " for number in range(5)
    ]
    assert more == "3 more pods that cannot be read"
    assert rest == {"reason": "MoreUnreadable", "resource": "pods", "count": 3}


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


def test_the_namespace_is_asked_whether_it_allows_admin_access(cluster: Cluster) -> None:
    """Only if a claim in it wants to look on; without the right that is not weighed."""
    namespace: Wire = {"kind": "Namespace", "metadata": {"name": "default"}}
    looking = [claim("look", ask(adminAccess=True)), pod("look", "look"), namespace]
    cluster.data("explain", "pod/large")
    assert ("get", "namespaces") not in cluster.api.asked

    cluster.api.objects += looking
    assert "wants admin access" in cluster.data("explain", "pod/look")["message"]
    namespace["metadata"]["labels"] = {"resource.kubernetes.io/admin-access": "true"}
    assert cluster.data("explain", "pod/look")["outcome"] == "Free"
    cluster.api.forbidden = frozenset({"namespaces"})
    assert cluster.not_weighed("explain", "pod/look") == [
        "whether namespace default may have admin access: you may not get namespaces"
    ]


def test_it_uses_each_right_of_the_role_and_no_other(cluster: Cluster) -> None:
    """Only reading; `--watch` alone watches."""
    cluster.api.objects += [
        claim("look", ask(adminAccess=True)),
        pod("look", "look"),
        {"kind": "Namespace", "metadata": {"name": "default"}},
    ]
    for words in ((), ("explain", "pod/look"), ("explain", "claim/look")):
        assert cluster.run(*words)[0] == 0
    assert cluster.run("why-unhealthy", "n2/npu-3")[0] == 0

    role = yaml.safe_load(ROLE.read_text(encoding="utf-8"))
    allowed = {
        (verb, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    watched = {("watch", "resourceslices"), ("watch", "resourceclaims")}
    assert cluster.api.asked == allowed - watched
    assert watched < allowed
