"""The memory of what the API server stores."""

import logging

import pytest

from tests.pool.pools import LATER, devices, spec, taint, tainted
from trio_npu_dra.kit.api.objects import Counter, CounterSet, DeviceCapacity
from trio_npu_dra.kit.pool.stored_forms import StoredForms

PLAIN, OTHER = devices(2)
BAD = tainted(PLAIN, taint())
SET = CounterSet(name="s", counters={"memory": Counter(value="8Gi")})


def test_a_slice_that_is_stored_as_sent_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """The time that the server adds to a taint is no difference."""
    forms = StoredForms()
    forms.learn(spec(BAD), spec(tainted(PLAIN, taint(time=LATER))))
    assert forms.as_stored(spec(BAD)) == spec(BAD)
    assert not forms.forget()
    assert caplog.records == []


def test_only_the_value_that_was_sent_has_another_form() -> None:
    """The memory says nothing of another taint or another device, and the newest answer counts."""
    forms = StoredForms()
    forms.learn(spec(BAD), spec(PLAIN))
    assert forms.as_stored(spec(BAD)) == spec(PLAIN)
    assert forms.as_stored(spec(tainted(PLAIN, taint("minor")))) != spec(PLAIN)
    assert forms.as_stored(spec(tainted(OTHER, taint()))) != spec(OTHER)
    forms.learn(spec(BAD), spec(BAD))
    assert forms.as_stored(spec(BAD)) == spec(BAD)
    assert forms.dropped == frozenset()


def test_a_rewritten_form_keeps_the_times_of_taints() -> None:
    """A quantity written differently beside a taint with its time."""
    written = PLAIN.model_copy(update={"capacity": {"memory": DeviceCapacity(value="1024Mi")}})
    stored = PLAIN.model_copy(update={"capacity": {"memory": DeviceCapacity(value="1Gi")}})
    timed = taint(time=LATER)
    forms = StoredForms()
    forms.learn(spec(tainted(written, taint())), spec(tainted(stored, timed)))
    assert forms.as_stored(spec(tainted(written, timed))) == spec(tainted(stored, timed))


def test_counter_sets_are_remembered_too() -> None:
    """A set that is dropped, one that is rewritten, and one that is kept after all."""
    other = SET.model_copy(update={"counters": {"memory": Counter(value="8192Mi")}})
    forms = StoredForms()
    forms.learn(spec(counters=(SET,)), spec())
    assert forms.as_stored(spec(counters=(SET,))) == spec()
    assert forms.as_stored(spec(counters=(other,))) == spec(counters=(other,))
    assert forms.dropped == {"sharedCounters"}
    forms.learn(spec(counters=(other,)), spec(counters=(SET,)))
    assert forms.as_stored(spec(counters=(other,))) == spec(counters=(SET,))
    assert forms.dropped == frozenset()
    assert forms.forget()
    forms.learn(spec(counters=(SET,)), spec(counters=(SET,)))
    assert not forms.forget()


def test_a_kind_of_difference_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not again for another device or after an outage."""
    caplog.set_level(logging.WARNING)
    forms = StoredForms()
    for _ in range(2):
        forms.learn(spec(BAD), spec(PLAIN))
        forms.learn(spec(tainted(OTHER, taint())), spec(OTHER))
        assert forms.forget()
    (record,) = caplog.records
    assert vars(record)["fields"] == ["taints"]
