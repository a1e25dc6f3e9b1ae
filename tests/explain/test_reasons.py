"""Each pod that waits gets its reason, and the page has what is printed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dev.explain.page import DOCS, PAGES, PICTURES, picture, with_outputs
from dev.explain.reasons import (
    CUT,
    MEMORY,
    REASONS,
    Reason,
    held,
    npu,
    partition,
    shared,
    takes,
)
from dev.explain.world import (
    Wire,
    allocated,
    ask,
    claim,
    class_,
    node,
    pod,
    slice_,
    view_of,
    with_results,
)
from trio_npu_dra.tools.cluster import said
from trio_npu_dra.tools.cluster.explain.answer import explain_claim, explain_pod
from trio_npu_dra.tools.cluster.objects import Claim, Pod
from trio_npu_dra.tools.cluster.said import Outcome

IS_WHOLE = 'device.attributes["npu.huawei.com"].type == "npu"'


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.title)
def test_each_reason_has_its_outcome(reason: Reason) -> None:
    """The sentences are in the table of the page."""
    assert reason.explained().outcome is reason.outcome


def test_no_two_reasons_have_one_sentence() -> None:
    """A person can tell them apart."""
    sentences = [reason.explained().sentence for reason in REASONS]

    assert len(sentences) > 20
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_have_what_is_printed(name: str) -> None:
    """`python -m dev.explain.page` writes it anew."""
    page = (DOCS / name).read_text(encoding="utf-8")

    assert "$ kubectl npu" in page
    assert with_outputs(page) == page


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_show_what_is_printed(name: str) -> None:
    """Also written anew; they name no other place, from which a browser would load something."""
    drawn = (DOCS / f"assets/{name}.svg").read_text(encoding="utf-8")

    assert picture(name) == drawn
    assert set(re.findall(r"\w+://[^\s\"]+", drawn)) == {"http://www.w3.org/2000/svg"}


def test_what_would_help_is_found_by_trying() -> None:
    """Either of two claims has to end; one that holds nothing of use is not named."""
    made = claim("train", ask(count=2))
    view = view_of(
        node("n1"),
        class_(),
        slice_("s1", npu(0), npu(1), npu(2)),
        held(0, name="a"),
        held(1, name="b"),
        made,
    )

    found = explain_pod(Pod.model_validate(pod("train", "train")), view)

    assert found.helps == (
        "1 instead of 2 for request npu of default/train, on n1",
        "when pod a-0 ends (claim default/a), on n1",
        "when pod b-0 ends (claim default/b), on n1",
    )


def test_a_claim_alone_is_explained() -> None:
    """It says where it could be allocated; an allocated one says what it has."""
    free, mine = claim("train", ask()), held(0)
    view = view_of(node("n1"), class_(), slice_("s1", npu(0), npu(1)), free, mine)

    found = explain_claim(Claim.model_validate(free), view)
    given = explain_claim(Claim.model_validate(mine), view)

    assert found.outcome is Outcome.FREE
    assert found.sentence.startswith("it can be allocated on n1")
    assert given.outcome is Outcome.GIVEN
    assert [one.id.name for one in given.claims[0].given] == ["npu-0"]
    assert given.claims[0].funnels[0].steps[-1].left == 2


def test_a_pod_that_does_not_start_has_its_event_as_the_reason() -> None:
    """It has its node and its devices; the last warning says what is wrong."""
    event = {
        "kind": "Event",
        "metadata": {"name": "e"},
        "type": "Warning",
        "reason": "FailedPrepareDynamicResources",
        "message": "npu-0 is held by another claim",
    }
    stuck = pod("infer-0", "infer", nodeName="n1")
    view = view_of(node("n1"), class_(), slice_("s1", npu(0)), held(0), stuck, event)

    found = explain_pod(Pod.model_validate(stuck), view)

    assert found.outcome is Outcome.GIVEN
    assert found.sentence.endswith(
        "does not start: Warning FailedPrepareDynamicResources: npu-0 is held by another claim"
    )


def test_the_newest_events_are_shown() -> None:
    """Five, the newest last, whatever order they come in."""
    events = [
        {
            "kind": "Event",
            "metadata": {"name": f"e{minute}"},
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": f"at {minute}",
            "lastTimestamp": f"2026-11-22T08:0{minute}:00Z",
        }
        for minute in (3, 6, 0, 5, 1, 4, 2)
    ]
    waiting = pod("train", "train")
    view = view_of(node("n1"), class_(), claim("train", ask()), waiting, *events)

    found = explain_pod(Pod.model_validate(waiting), view)

    assert [event.message.rpartition(" ")[2] for event in found.events] == ["2", "3", "4", "5", "6"]


def test_a_warning_of_the_scheduler_is_over_once_the_pod_has_its_node() -> None:
    """It waited for an NPU, has one now, and is being started."""
    event = {
        "kind": "Event",
        "metadata": {"name": "e"},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "0/1 nodes are available",
    }
    placed = pod("infer-0", "infer", nodeName="n1")
    view = view_of(node("n1"), class_(), slice_("s1", npu(0)), held(0), placed, event)

    found = explain_pod(Pod.model_validate(placed), view)

    assert "does not start" not in found.sentence


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ((claim("train", ask()),), "claim default/train is not allocated"),
        ((), "there is no ResourceClaim train in namespace default"),
    ],
)
def test_a_pod_that_names_its_node_itself_has_no_devices(
    claims: tuple[Wire, ...], said: str
) -> None:
    """The scheduler has not seen it, so its claim is not allocated."""
    placed = pod("train", "train", nodeName="n1")
    view = view_of(node("n1"), class_(), slice_("s1", npu(0)), *claims, placed)

    found = explain_pod(Pod.model_validate(placed), view)

    assert found.outcome is Outcome.WAITS
    assert said in found.sentence
    assert all(report.state == "is not allocated" for report in found.claims)


def test_a_pod_that_has_ended_has_no_devices() -> None:
    """Its claim may have been freed, or be another pod's by now."""
    ended = pod("train", "train", nodeName="n1", status={"phase": "Succeeded"})
    view = view_of(node("n1"), class_(), slice_("s1", npu(0)), claim("train", ask()), ended)

    found = explain_pod(Pod.model_validate(ended), view)

    assert (found.outcome, found.sentence) == (Outcome.ENDED, "it was on n1, and has Succeeded")
    never = Pod.model_validate(pod("train", "train", status={"phase": "Failed"}))
    assert "None" not in explain_pod(never, view).sentence


def test_a_pod_without_claims_is_not_said_to_have_devices() -> None:
    """It may be asked about by mistake."""
    plain = pod("web", nodeName="n1", status={"phase": "Running"})

    found = explain_pod(Pod.model_validate(plain), view_of(node("n1"), plain))

    assert found.sentence == "it has no claims; it is on n1, Running"


def test_a_selector_that_is_not_understood_is_not_said_to_match() -> None:
    """That all are held is known; whether one of them would do if it were free is not."""
    unknown = 'device.attributes["npu.huawei.com"].model.split("n").size() == 2'
    made = claim("train", ask(unknown))
    view = view_of(node("n1"), class_(), slice_("s1", npu(0), npu(1)), held(0, 1), made)

    found = explain_pod(Pod.model_validate(pod("train", "train")), view)

    steps = found.claims[0].funnels[0].steps
    assert found.outcome is Outcome.UNDECIDED
    assert "does not implement the CEL function split" in found.sentence
    assert [step.counting.partition(" ")[0] for step in steps] == [
        *("are", "are", "are", "may", "are", "is"),
    ]


def test_without_rights_nothing_is_said_of_nodes() -> None:
    """Devices are weighed alone, on the nodes that slices name."""
    whole = view_of(class_(), slice_("s1", npu(0)), claim("train", ask(MEMORY.replace("64", "32"))))
    doubt = said.Said("nodes", said.Doubt.FORBIDDEN, verb="list", resource="nodes")
    view = type(whole)(
        slices=whole.slices, claims=whole.claims, classes=whole.classes, doubts=(doubt,)
    )

    found = explain_pod(Pod.model_validate(pod("train", "train", nodeSelector={"a": "b"})), view)

    assert found.outcome is Outcome.FREE
    assert found.doubts == ("nodes",)


def test_what_older_schedulers_make_of_flawed_pools_is_not_decided() -> None:
    """1.34 allocates from a pool that is not complete."""
    half = slice_("s1", npu(0), count=2)
    new = view_of(node("n1"), class_(), half, claim("train", ask()), minor=36)
    train = Pod.model_validate(pod("train", "train"))

    found = explain_pod(train, new)
    older = explain_pod(train, replace(new, minor=34))

    assert [found.outcome, older.outcome] == [Outcome.WAITS, Outcome.UNDECIDED]
    assert "a scheduler of Kubernetes 1.34" in older.sentence


def test_older_schedulers_give_up_on_all_for_the_pool_of_another_node() -> None:
    """Up to 1.36 each node sees the counters of all."""
    counters = [{"name": "npu-0", "counters": {}}]
    far = slice_("s2", node="n2", sharedCounters=counters, count=2)
    everything = claim("train", ask(allocationMode="All"))
    new = view_of(node("n1"), class_(), slice_("s1", npu(0)), far, everything, minor=37)
    train = Pod.model_validate(pod("train", "train"))

    outcomes = [explain_pod(train, replace(new, minor=minor)).outcome for minor in (37, 36)]

    assert outcomes == [Outcome.FREE, Outcome.FAILS]


def test_what_older_schedulers_make_of_distinct_attributes_is_not_decided() -> None:
    """Up to 1.36 they compare only some of the devices of one request."""
    rule = {"distinctAttribute": "npu.huawei.com/topologyGroup"}
    several = claim("train", ask(count=2), constraints=[rule])
    new = view_of(node("n1"), class_(), slice_("s1", npu(0), npu(1)), several, minor=37)
    train = Pod.model_validate(pod("train", "train"))

    outcomes = [explain_pod(train, replace(new, minor=minor)).outcome for minor in (37, 36)]

    assert outcomes == [Outcome.WAITS, Outcome.UNDECIDED]


def test_without_rights_devices_of_several_nodes_are_not_decided() -> None:
    """The labels of nodes that may not be read decide which nodes can have them."""
    labels = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    shared = slice_("s1", npu(0), node="", pool="p", nodeSelector={"nodeSelectorTerms": [labels]})
    whole = view_of(class_(), shared, claim("train", ask()))
    view = type(whole)(slices=whole.slices, claims=whole.claims, classes=whole.classes)

    own = view_of(class_(), slice_("s1", npu(0)), held(0), claim("train", ask()))
    train = Pod.model_validate(pod("train", "train"))
    views = (view, whole, replace(own, nodes=None))
    found = [explain_pod(train, one).outcome for one in views]

    assert found == [Outcome.UNDECIDED, Outcome.WAITS, Outcome.WAITS]


def test_admin_access_takes_nothing_and_needs_nothing_free() -> None:
    """Admin access to a held device without counters; it is free for others beside such a claim."""
    looking = claim("look", ask(adminAccess=True))
    result = {
        "request": "npu",
        "driver": "npu.huawei.com",
        "pool": "n1",
        "device": "npu-0",
        "adminAccess": True,
    }
    base = (node("n1"), class_(), slice_("s1", npu(0)))
    wanting = Pod.model_validate(pod("train", "look"))
    other = Pod.model_validate(pod("train", "train"))

    beside = explain_pod(wanting, view_of(*base, held(0), looking))
    after = explain_pod(
        other, view_of(*base, with_results(looking, [result]), claim("train", ask()))
    )

    assert [beside.outcome, after.outcome] == [Outcome.FREE, Outcome.FREE]


@pytest.mark.parametrize("has", ["npu-0", "npu-0-vnpu-0"])
def test_admin_access_needs_counters(has: str) -> None:
    """Schedulers count them for admin access too, of a chip that is cut for claims."""
    slices = [CUT, slice_("s1", npu(0, consumesCounters=takes("20")), partition(0), count=2)]
    looking = claim("look", ask(adminAccess=True, selectors=[{"cel": {"expression": IS_WHOLE}}]))
    infer = allocated(claim("infer", ask()), has, users=["infer-0"])
    view = view_of(node("n1"), class_(), *slices, infer, looking)

    found = explain_pod(Pod.model_validate(pod("look", "look")), view)

    assert found.outcome is Outcome.WAITS
    assert "none has counters and shares left" in found.sentence
    assert "needs what claim default/infer (pod infer-0) has of the same counters" in found.sentence


def test_admin_access_needs_a_share() -> None:
    """Schedulers count shares for admin access too."""
    share = {
        "request": "npu",
        "driver": "npu.huawei.com",
        "pool": "n1",
        "device": "npu-0",
        "shareID": "7e57a3b1-0000-4000-8000-000000000001",
        "consumedCapacity": {"memCapacity": "32Gi"},
    }
    infer = with_results(claim("infer", ask()), [share], users=["infer-0"])
    looking = claim("look", ask(adminAccess=True))
    view = view_of(node("n1"), class_(), slice_("s1", shared("8Gi")), infer, looking)

    found = explain_pod(Pod.model_validate(pod("look", "look")), view)

    assert "1 has too little left (0 of 32Gi memCapacity) beside claim" in found.sentence


@pytest.mark.parametrize("second", [ask(), ask(adminAccess=True)])
def test_a_claim_cannot_have_a_device_twice(second: Wire) -> None:
    """Admin access needs nothing free, but no device that the claim has by another request."""
    looking = {"name": "look", "exactly": ask(adminAccess=True)}
    made = claim("train", looking, {"name": "work", "exactly": second})
    view = view_of(node("n1"), class_(), slice_("s1", npu(0)), made)

    found = explain_pod(Pod.model_validate(pod("train", "train")), view)

    assert found.outcome is Outcome.WAITS
    assert "some want the same device, and a claim cannot have a device twice" in found.sentence


def test_admin_access_needs_a_namespace_for_it() -> None:
    """The API server takes no allocation of such a claim elsewhere; it may be unknown."""
    made = claim("train", ask(adminAccess=True))
    view = view_of(node("n1"), class_(), slice_("s1", npu(0)), made)
    waiting = Pod.model_validate(pod("train", "train"))

    refused = explain_pod(waiting, replace(view, admin_access_allowed=False))

    assert refused.outcome is Outcome.WAITS
    assert refused.sentence == (
        "claim default/train wants admin access, which is not given in namespace default: it has "
        "no label resource.kubernetes.io/admin-access=true"
    )
    for known in (True, None):
        found = explain_pod(waiting, replace(view, admin_access_allowed=known))
        assert found.outcome is Outcome.FREE
    plain = view_of(node("n1"), class_(), slice_("s1", npu(0)), claim("train", ask()))
    assert explain_pod(waiting, replace(plain, admin_access_allowed=False)).outcome is Outcome.FREE
