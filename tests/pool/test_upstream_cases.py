"""The cases of resourceslicecontroller_test.go in k8s.io/dynamic-resource-allocation, by its names.

A slice with one device there is a full one here: the caller of that controller chooses the slice of
a device, this driver fills slices. docs/upstream-cases.md has both sides in a table.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.pool.pools import (
    EARLIER,
    LATER,
    Slices,
    apply,
    block,
    devices,
    kinds,
    numbered,
    pool,
    spec,
    stored,
    taint,
    tainted,
)
from trio_npu_dra.kit.api.objects import (
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourceSliceSpec,
)
from trio_npu_dra.kit.base.errors import InvalidPool
from trio_npu_dra.kit.pool import Pool, plan
from trio_npu_dra.kit.pool.pool import generate_name, index_in
from trio_npu_dra.kit.pool.stored_forms import StoredForms

(PLAIN,) = devices(1)
(CHANGED,) = devices(1, model="B")
SET = CounterSet(name="npu-0", counters={"memory": Counter(value="8Gi")})
THREE = (*block(0), *block(1), *block(2))
THREE_STORED = tuple(numbered(index, *block(index), count=3) for index in range(3))


def consuming(counter_set: str, counter: str) -> Device:
    """A device that takes from a counter set."""
    taken = DeviceCounterConsumption(
        counter_set=counter_set, counters={counter: Counter(value="1Gi")}
    )
    return PLAIN.model_copy(update={"consumes_counters": (taken,)})


def with_fields(**fields: Any) -> Device:
    """A device with fields that this driver does not know."""
    return Device.model_validate(PLAIN.to_wire() | fields)


def blocks(*models: str, generation: int) -> tuple[ResourceSliceSpec, ...]:
    """Full slices."""
    return tuple(
        spec(*block(index, model=model), generation=generation, count=len(models))
        for index, model in enumerate(models)
    )


def marked(device: Device, key: str, *, time: str | None) -> DeviceTaint:
    """Another taint."""
    return DeviceTaint(key=f"{device.name}.io/{key}", effect="NoExecute", time_added=time)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One sync of a pool.

    Attributes:
        existing: What the API server has.
        desired: What shall be.
        drops: Fields that the API server does not have.
        writes: The expected writes, in order.
        after: What the API server has then, by name.
    """

    existing: Slices = ()
    desired: Pool
    drops: frozenset[str] = field(default_factory=frozenset)
    writes: tuple[str, ...]
    after: tuple[ResourceSliceSpec, ...]


BINDING = with_fields(
    bindingConditions=["attached"], bindingFailureConditions=["failed"], bindsToNode=True
)

SYNCS = {
    "create-slice": Case(desired=pool(), writes=("create",), after=(spec(),)),
    "keep-slice-unchanged": Case(
        existing=(numbered(0, PLAIN),), desired=pool(PLAIN), writes=(), after=(spec(PLAIN),)
    ),
    "keep-taint-unchanged": Case(
        existing=(numbered(0, tainted(PLAIN, taint(time=EARLIER))),),
        desired=pool(tainted(PLAIN, taint())),
        writes=(),
        after=(spec(tainted(PLAIN, taint(time=EARLIER))),),
    ),
    "add-taints": Case(
        existing=(numbered(0, tainted(PLAIN, taint(time=EARLIER))),),
        desired=pool(
            tainted(
                PLAIN,
                taint(),
                marked(PLAIN, "new", time=None),
                marked(PLAIN, "dated", time="2025-12-31T12:00:00.1+00:00"),
            )
        ),
        writes=("update",),
        after=(
            spec(
                tainted(
                    PLAIN,
                    taint(time=EARLIER),
                    marked(PLAIN, "new", time=LATER),
                    marked(PLAIN, "dated", time="2025-12-31T12:00:00Z"),
                )
            ),
        ),
    ),
    "drop-taints": Case(
        existing=(numbered(0, PLAIN),),
        desired=pool(tainted(PLAIN, taint())),
        drops=frozenset({"taints"}),
        writes=("update",),
        after=(spec(PLAIN),),
    ),
    "drop-consumable-capacity-field": Case(
        existing=(numbered(0, PLAIN),),
        desired=pool(with_fields(allowMultipleAllocations=True)),
        drops=frozenset({"allowMultipleAllocations"}),
        writes=("update",),
        after=(spec(PLAIN),),
    ),
    "remove-pool": Case(
        existing=(numbered(0, PLAIN),), desired=pool(), writes=("update",), after=(spec(),)
    ),
    "one-existing-and-one-desired-slice-should-be-updated-inplace": Case(
        existing=(numbered(0),), desired=pool(PLAIN), writes=("update",), after=(spec(PLAIN),)
    ),
    "update-slice-when-more-than-one-existing-or-desired-slice": Case(
        existing=(numbered(0, count=2), numbered(1, *block(1), count=2)),
        desired=pool(*block(0), *block(1)),
        writes=("update",),
        after=blocks("A", "A", generation=1),
    ),
    "delete-redundant-slice": Case(
        existing=(numbered(0, PLAIN), numbered(1, PLAIN)),
        desired=pool(PLAIN),
        writes=("delete",),
        after=(spec(PLAIN),),
    ),
    "update-slice": Case(
        existing=(numbered(0, PLAIN),),
        desired=pool(CHANGED),
        writes=("update",),
        after=(spec(CHANGED),),
    ),
    "update-slice-many-devices": Case(
        existing=(numbered(0, *devices(2)),),
        desired=pool(PLAIN, devices(2, model="B")[1]),
        writes=("update",),
        after=(spec(PLAIN, devices(2, model="B")[1]),),
    ),
    "multiple-resourceslices-existing-no-changes": Case(
        existing=THREE_STORED,
        desired=pool(*THREE),
        writes=(),
        after=blocks("A", "A", "A", generation=1),
    ),
    "multiple-resourceslices-existing-with-different-resource-pool-generation": Case(
        existing=(numbered(0), numbered(1, PLAIN, generation=2), numbered(2)),
        desired=pool(PLAIN),
        writes=("delete", "delete", "delete", "create"),
        after=(spec(PLAIN, generation=3),),
    ),
    "multiple-resourceslices-existing-one-changed": Case(
        existing=THREE_STORED,
        desired=pool(*block(0), *block(1, model="B"), *block(2)),
        writes=("update",),
        after=blocks("A", "B", "A", generation=1),
    ),
    "multiple-resourceslices-existing-two-changed": Case(
        existing=THREE_STORED,
        desired=pool(*block(0), *block(1, model="B"), *block(2, model="B")),
        writes=("update", "update", "update"),
        after=blocks("A", "B", "B", generation=2),
    ),
    "multiple-resourceslices-existing-one-removed": Case(
        existing=THREE_STORED,
        desired=pool(*block(0), *block(1)),
        writes=("delete", "update", "update"),
        after=blocks("A", "A", generation=2),
    ),
    "multiple-resourceslices-existing-one-added": Case(
        existing=THREE_STORED,
        desired=pool(*THREE, *block(3)),
        writes=("update", "update", "update", "create"),
        after=blocks("A", "A", "A", "A", generation=2),
    ),
    "create-partitionable-devices": Case(
        desired=pool(consuming("npu-0", "memory"), counters=(SET,)),
        writes=("create", "create"),
        after=(spec(counters=(SET,), count=2), spec(consuming("npu-0", "memory"), count=2)),
    ),
    "drop-partitionable-devices": Case(
        desired=pool(consuming("npu-0", "memory"), counters=(SET,)),
        drops=frozenset({"sharedCounters", "consumesCounters"}),
        writes=("create", "create"),
        after=(spec(count=2), spec(PLAIN, count=2)),
    ),
    "create-device-with-binding-condition": Case(
        desired=pool(BINDING), writes=("create",), after=(spec(BINDING),)
    ),
    "drop-device-with-binding-condition": Case(
        desired=pool(BINDING),
        drops=frozenset({"bindingConditions", "bindingFailureConditions", "bindsToNode"}),
        writes=("create",),
        after=(spec(PLAIN),),
    ),
    "migration-from-random-naming-to-index-based-naming": Case(
        existing=tuple(
            stored(f"random-name{index + 1}", *block(index), count=3) for index in range(3)
        ),
        desired=pool(*THREE),
        writes=("delete",) * 3 + ("create",) * 3,
        after=blocks("A", "A", "A", generation=2),
    ),
    "migration-mixed-naming": Case(
        existing=(
            stored("random-name1", *block(0), count=3),
            numbered(1, *block(1), count=3),
            stored("random-name3", *block(2), count=3),
        ),
        desired=pool(*THREE),
        writes=("delete", "delete", "update", "create", "create"),
        after=blocks("A", "A", "A", generation=2),
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in SYNCS.items()])
def test_sync_pool(case: Case) -> None:
    """The expected writes in order, the dropped fields, and a second sync that does nothing."""
    forms = StoredForms()
    writes = plan(case.existing, case.desired, forms.as_stored)
    after = apply(case.existing, writes, forms, case.drops)
    assert tuple(kinds(writes)) == case.writes
    assert tuple(item.spec for item in after) == case.after
    assert forms.dropped == case.drops
    assert plan(after, case.desired, forms.as_stored) == ()


@pytest.mark.parametrize(
    ("desired", "words"),
    [
        pytest.param(
            pool(PLAIN, counters=(SET, SET)),
            "counter set npu-0 is in it twice",
            id="detect-resource-pools-with-duplicate-counter-sets",
        ),
        pytest.param(pool(PLAIN, PLAIN), "device d0 is in it twice", id="detect-duplicate-devices"),
        pytest.param(
            pool(consuming("npu-1", "memory"), counters=(SET,)),
            "device d0 consumes from an unknown counter set npu-1",
            id="detect-device-referencing-unknown-counter-set",
        ),
        pytest.param(
            pool(consuming("npu-0", "cpu"), counters=(SET,)),
            "device d0 consumes an unknown counter cpu of npu-0",
            id="detect-device-referencing-unknown-counter-in-counter-set",
        ),
    ],
)
def test_refused_pool(desired: Pool, words: str) -> None:
    """A pool that contradicts itself is refused before anything is written, in one error."""
    with pytest.raises(InvalidPool, match=f"^the pool is not published: {words}$"):
        plan((numbered(0, PLAIN),), desired)


INDICES = {
    "00000": 0,
    "00001": 1,
    "00009": 9,
    "0000a": 10,
    "0001a": 26,
    "0001b": 27,
    "00023": 35,
    "00024": 36,
    "186a0": 100000,
}
NO_INDICES = ("00000", "0000g-", "-0001-", "100000-", "80000000-", "8000000000000000-")


@pytest.mark.parametrize(
    ("digits", "index"),
    [pytest.param(digits, index, id=str(index)) for digits, index in INDICES.items()],
)
def test_encode_index(digits: str, index: int) -> None:
    """An index is five hex digits, so that names sort as indices do."""
    assert generate_name("n", "d.io", index) == f"n-d.io-{digits}-"


@pytest.mark.parametrize(
    ("digits", "index"),
    [
        *(pytest.param(f"{digits}-", index, id=f"{digits}-") for digits, index in INDICES.items()),
        pytest.param("00000-driver-owner-suffix", 0, id="00000-driver-owner-suffix"),
        pytest.param("00001-driver-owner-suffix", 1, id="00001-driver-owner-suffix"),
        *(pytest.param(digits, None, id=digits) for digits in NO_INDICES),
    ],
)
def test_decode_index(digits: str, index: int | None) -> None:
    """Five hex digits and a dash behind our prefix are an index, nothing else is."""
    assert index_in(f"n-d.io-{digits}", "n", "d.io") == index
