"""What a sentence about a request counts."""

from __future__ import annotations

import re

import pytest

from dev.explain.reasons import REASONS, Reason, npu
from dev.explain.world import DRIVER, ask, claim, class_, node, pod, slice_, view_of
from trio_npu_dra.tools.cluster import said
from trio_npu_dra.tools.cluster.explain.answer import explain_pod
from trio_npu_dra.tools.cluster.explain.funnel import Loss, loss_words
from trio_npu_dra.tools.cluster.inventory import DeviceId
from trio_npu_dra.tools.cluster.objects import Pod


def loss(why: str, count: int) -> Loss:
    """So many devices that are lost for that reason."""
    words = said.Said(why, said.Lost.DIFFERS, values={})
    if why.startswith("are held"):
        words = said.Said(why, said.Lost.HELD, holders=[])
    devices = tuple(DeviceId(DRIVER, "n1", f"npu-{at}") for at in range(count))
    return Loss(why=words, devices=devices)


@pytest.mark.parametrize(
    ("last", "more", "end"),
    [
        ([], 0, ""),
        (["are held by claim default/d"], 2, "2 by 1 other claim"),
        (["are held by claim default/d", "are held by claim default/e"], 2, "4 by 2 other claims"),
        (["are held by claim default/d", "have the taint x"], 2, "4 for 2 other reasons"),
        (["have the taint x"], 1, "1 for 1 other reason"),
    ],
)
def test_three_reasons_are_named_and_the_rest_counted(last: list[str], more: int, end: str) -> None:
    """Claims are called so if it is only claims."""
    named = [f"are held by claim default/{name}" for name in "abc"]
    losses = [*(loss(why, 2) for why in named), *(loss(why, more) for why in last)]

    words = [f"2 {why}" for why in named] + [end] * bool(end)
    assert loss_words(losses) == "; ".join(words)


@pytest.mark.parametrize("published", [0, 1])
def test_what_is_published_is_counted(published: int) -> None:
    """One is too few for a request of two, and it is not none."""
    view = view_of(
        *(node("n1"), class_(), claim("train", ask(count=2))),
        slice_("s1", *(npu(at) for at in range(published))),
    )

    found = explain_pod(Pod.model_validate(pod("train", "train")), view)

    assert ("no device" in found.sentence) is (published == 0)
    assert ("only 1" in found.sentence) is (published == 1)


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.title)
def test_a_sentence_has_no_gap(reason: Reason) -> None:
    """Where a part of it has nothing to say; nor a Python value."""
    assert not re.search(r"\(\s*\)|\s[;:,]|[;:,]\s*[;:,)]|  |\bNone\b", reason.explained().sentence)
