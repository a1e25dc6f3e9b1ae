"""The agent of one node writes Events in its own name alone, about its Node and about claims."""

from __future__ import annotations

import pytest

from tests.admission.policy import ELSEWHERE, NODE, Object, Request, policies
from trio_npu_dra.agent.report.events import new_event
from trio_npu_dra.agent.report.news import News, Reason
from trio_npu_dra.kit.api.events import ObjectReference

POLICY = policies("base")["ascend-npu-dra-own-events"]
NAMES = "may only write Events of npu.huawei.com on that node"
ABOUT = "may only write Events about that node and about ResourceClaims"


def ours(kind: str = "Node", name: str = NODE) -> Object:
    """An Event as the driver on our node writes it."""
    news = News(about="npu-3", reason=Reason.FAULT, message="npu-3: fault")
    about = ObjectReference(api_version="v1", kind=kind, name=name, uid="some")
    return new_event(news, about, "", "npu.huawei.com", NODE).to_wire()


def refusals(*, new: Object, old: Object | None = None) -> list[str]:
    """Why the policy refuses a write of an Event."""
    return POLICY.refusals(Request(resource="events", new=new, old=old))


@pytest.mark.parametrize("about", [("Node", NODE), ("ResourceClaim", "some")])
def test_what_the_driver_writes_is_let_through(about: tuple[str, str]) -> None:
    """New Events, and their counts."""
    event = ours(*about)
    assert refusals(new=event) == []
    assert refusals(new=event | {"count": 2}, old=event) == []


@pytest.mark.parametrize(
    "difference",
    [
        {"reportingComponent": "kubelet"},
        {"reportingInstance": ELSEWHERE},
        {"source": {"component": "node-controller", "host": NODE}},
        {"source": {"component": "npu.huawei.com", "host": ELSEWHERE}},
        {"source": {"component": "npu.huawei.com"}},
        {"source": {}},
    ],
    ids=str,
)
def test_an_event_has_no_foreign_source(difference: Object) -> None:
    """Neither as what reports nor as the source, which `kubectl describe` shows as From."""
    foreign = ours() | difference
    for asked in (
        {"new": foreign},
        {"new": foreign, "old": ours()},
        {"new": ours(), "old": foreign},
    ):
        (told,) = refusals(**asked)
        assert NAMES in told


@pytest.mark.parametrize("about", [("Node", ELSEWHERE), ("Pod", "some"), ("Pod", NODE)])
def test_nothing_is_said_of_other_objects(about: tuple[str, str]) -> None:
    """Of other nodes, or of pods."""
    (told,) = refusals(new=ours(*about))
    assert ABOUT in told
