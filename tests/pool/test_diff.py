"""Cases of the plan, and laws that hold for all pools."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pool.pools import (
    OWNER,
    Devices,
    apply,
    block,
    counter_sets,
    devices,
    generations,
    kinds,
    numbered,
    pool,
    published,
    stored,
    taint,
    tainted,
)
from trio_npu_dra.kit.api.objects import Device
from trio_npu_dra.kit.base.errors import InvalidPool
from trio_npu_dra.kit.pool import plan
from trio_npu_dra.kit.pool.diff import Write
from trio_npu_dra.kit.pool.pool import DEVICES_PER_SLICE
from trio_npu_dra.kit.pool.stored_forms import StoredForms
from trio_npu_dra.kit.pool.taint_times import untimed


def test_a_pool_that_contradicts_itself_is_refused() -> None:
    """Before anything is written."""
    twice = devices(1) * 2
    with pytest.raises(InvalidPool, match="device d0 is in it twice"):
        plan((), pool(*twice))


def test_slices_of_an_older_generation_are_replaced() -> None:
    """Only those of the newest one are the pool."""
    existing = (numbered(0), numbered(1, *devices(1), generation=2), numbered(2))
    writes = plan(existing, pool(*devices(1)))
    assert kinds(writes) == ["delete", "delete", "delete", "create"]
    assert generations(apply(existing, writes)) == {3}


def test_deletes_and_updates_say_what_they_expect() -> None:
    """Each carries the uid and the version that were read, so that another's edit is not lost."""
    existing = (numbered(0, *devices(1)), numbered(1))
    removed, changed = plan(existing, pool(*devices(2)))
    assert removed.slice.metadata == existing[1].metadata
    assert changed.slice.metadata == existing[0].metadata
    assert changed.slice.metadata.uid
    assert changed.slice.metadata.resource_version


@pytest.mark.parametrize(
    ("remaining", "expected", "generation"),
    [
        pytest.param(block(0), ["delete", "delete", "update"], 1, id="one-left"),
        pytest.param((), ["delete", "delete", "update"], 1, id="none-left"),
        pytest.param((*block(0), *block(2)), ["delete", "update", "update"], 2, id="one-moved"),
    ],
)
def test_a_shrinking_pool(remaining: Devices, expected: list[str], generation: int) -> None:
    """One update completes the pool at once; with two a new generation says when it is complete."""
    existing = published(pool(*block(0), *block(1), *block(2)))
    writes = plan(existing, pool(*remaining))
    assert kinds(writes) == expected
    assert generations(apply(existing, writes)) == {generation}


@pytest.mark.parametrize(
    "edit",
    [
        {"bindingConditions": ["never"]},
        {"attributes": {"model": {"strings": ["A", "B"]}}},
        {"taints": [{"key": "a.io/b", "effect": "NoSchedule", "howLong": "1h"}]},
    ],
)
def test_an_edit_of_an_unknown_field_is_a_difference(edit: dict[str, object]) -> None:
    """A field that this driver does not know is put right as well."""
    (device,) = devices(1)
    edited = Device.model_validate(device.to_wire() | edit)
    (write,) = plan([numbered(0, edited)], pool(device))
    assert write.slice.spec.devices == (device,)


def test_an_edit_of_counters_is_a_difference() -> None:
    """The slice of counter sets is put right in place."""
    wanted = pool(*devices(1), counters=counter_sets(1))
    sets, content = published(wanted)
    edited = counter_sets(1, amount="16")
    spoilt = sets.model_copy(
        update={"spec": sets.spec.model_copy(update={"shared_counters": edited})}
    )
    (write,) = plan([spoilt, content], wanted)
    assert (write.verb, write.slice) == ("update", sets)


def test_an_owner_of_a_former_node_is_replaced() -> None:
    """A slice whose Node was replaced gets the new owner before it is collected."""
    existing = numbered(0, *devices(1))
    heir = OWNER.model_copy(update={"uid": "u-2"})
    (write,) = plan([existing], replace(pool(*devices(1)), owner=heir))
    assert write.verb == "update"
    assert write.slice.metadata.owner_references == (heir,)


def test_a_pool_of_another_name_is_removed() -> None:
    """Slices of our driver and node under another pool's name go; the generation is not theirs."""
    existing = stored("n-d.io-00000-a", *devices(1), pool_name="old", generation=9)
    removed, made = plan([existing], pool(*devices(1)))
    assert removed == Write("delete", existing)
    assert made.verb == "create"
    assert made.slice.spec.pool.generation == 1


def test_a_redundant_slice_is_deleted() -> None:
    """Of two slices with one index the first by name stays."""
    first = numbered(0, *devices(1))
    second = stored("n-d.io-00000-b", *devices(1))
    assert plan([second, first], pool(*devices(1))) == (Write("delete", second),)


def test_a_generation_that_has_no_next_one_is_replaced() -> None:
    """An edit may leave it; the API server would refuse each later change of the pool."""
    many = devices(DEVICES_PER_SLICE + 1)
    existing = (numbered(0, *many[:1], generation=2**63 - 1),)
    writes = plan(existing, pool(*many))
    assert kinds(writes) == ["delete", "create", "create"]
    after = apply(existing, writes)
    assert generations(after) == {1}
    assert plan(after, pool(*many)) == ()


@pytest.mark.parametrize(
    "name",
    [
        "n-d.io-abcde",
        "n-d.io-0000-a",
        "n-d.io-000000-a",
        "n-d.io-0000g-a",
        "00000-n-d.io-a",
        "other",
    ],
)
def test_slices_under_other_names_are_migrated(name: str) -> None:
    """Random names, indices of another length and other prefixes are replaced by ours."""
    existing = stored(name, *devices(1), generation=3)
    removed, made = plan([existing], pool(*devices(1)))
    assert removed == Write("delete", existing)
    assert made.verb == "create"
    assert made.slice.spec.pool.generation == 4


contents = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from("AB"), st.booleans()),
    max_size=150,
    unique_by=lambda drawn: drawn[0],
).map(
    lambda drawn: tuple(
        tainted(device, taint()) if marked else device
        for number, model, marked in drawn
        for device in (devices(number + 1, model=model)[number],)
    )
)


@given(before=contents, after=contents)
def test_a_plan_reaches_the_pool_and_then_rests(before: Devices, after: Devices) -> None:
    """From any pool to any other, in one complete generation, and a second plan is empty."""
    existing = published(pool(*before))
    reached = apply(existing, plan(existing, pool(*after)))
    assert len(generations(reached)) == 1
    assert {item.spec.pool.resource_slice_count for item in reached} == {len(reached)}
    in_order = sorted(reached, key=lambda item: item.metadata.name)
    assert tuple(untimed(d) for item in in_order for d in item.spec.devices) == after
    assert plan(reached, pool(*after)) == ()


@given(before=contents, after=contents, survivors=st.sets(st.integers(0, 6)))
def test_a_broken_off_write_is_recovered(
    before: Devices, after: Devices, survivors: set[int]
) -> None:
    """Whichever of the writes were made, planning again reaches the pool."""
    existing = published(pool(*before))
    writes = plan(existing, pool(*after))
    made = tuple(write for number, write in enumerate(writes) if number in survivors)
    halfway = apply(existing, made)
    reached = apply(halfway, plan(halfway, pool(*after)))
    assert len(generations(reached)) == 1
    assert plan(reached, pool(*after)) == ()


@given(
    before=contents,
    after=contents,
    sets=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    drops=st.frozensets(st.sampled_from(["taints", "attributes", "sharedCounters"])),
)
def test_dropped_fields_are_not_written_again(
    before: Devices, after: Devices, sets: tuple[int, int], drops: frozenset[str]
) -> None:
    """Whatever the API server lacks, one sync is enough, also when the pool goes back."""
    first, second = (
        pool(*content, counters=counter_sets(count))
        for content, count in zip((before, after), sets, strict=True)
    )
    forms = StoredForms()
    existing = apply((), plan((), first, forms.as_stored), forms, drops)
    for current, wanted in ((first, second), (second, first)):
        assert plan(existing, current, forms.as_stored) == ()
        existing = apply(existing, plan(existing, wanted, forms.as_stored), forms, drops)
        assert len(generations(existing)) == 1
    assert plan(existing, first, forms.as_stored) == ()
