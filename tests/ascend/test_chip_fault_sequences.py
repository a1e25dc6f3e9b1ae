"""One chip's faults after any sequence of events, looks and restarts."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.ascend.test_chip_faults import (
    BUSINESS,
    LINK,
    PLAIN,
    START,
    UNKNOWN,
    chip,
    event,
    listing,
)
from trio_npu_dra.ascend.dcmi.types import Assertion, FaultEvent
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.model import FaultLevel

CODES = st.sampled_from([PLAIN, BUSINESS, LINK, UNKNOWN])
STEPS = st.one_of(
    st.builds(event, CODES, st.sampled_from(Assertion)),
    st.builds(lambda codes: listing(*codes), st.sets(CODES)),
    st.sampled_from(
        [
            HealthSample(gone=True),
            HealthSample(unmonitored="busy"),
            HealthSample(codes=None),
            "restart",
        ]
    ),
)


@given(st.lists(STEPS), st.sets(CODES))
def test_any_sequence_ends_in_what_a_fresh_look_says(
    steps: Sequence[FaultEvent | HealthSample | str], listed: set[int]
) -> None:
    """Events, losses, restarts, chip gone and back: the last look decides which codes are there."""
    faults, now = chip(), START
    for step in steps:
        now += 0.1
        if isinstance(step, FaultEvent):
            faults.note(step, now)
        elif isinstance(step, HealthSample):
            faults.take_confirmed(step, now)
        else:
            faults = chip(dict(faults.memory))
    faults.take_confirmed(listing(*listed), now)
    health = faults.health(now)
    separated = {f.code for f in health.faults if f.level is FaultLevel.MANUALLY_SEPARATE_NPU}
    assert {fault.code for fault in health.faults} - separated == listed - separated
    assert separated <= {LINK}
    assert not health.unmonitored
    ranks = [fault.level.rank for fault in health.faults]
    assert ranks == sorted(ranks, reverse=True)
