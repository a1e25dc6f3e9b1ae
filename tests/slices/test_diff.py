"""Promises of the plan: the cases of the upstream slice controller, and laws that hold for all."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_npu_dra.errors import Invalid
from trio_npu_dra.kube.objects import (
    Device,
    DeviceAttribute,
    DeviceTaint,
    ObjectMeta,
    OwnerReference,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from trio_npu_dra.slices.diff import Create, Delete, Update, Write, plan
from trio_npu_dra.slices.names import generate_name, index_in
from trio_npu_dra.slices.pool import DEVICES_PER_SLICE, Pool

OWNER = OwnerReference(api_version="v1", kind="Node", name="n", uid="u-1", controller=True)
EARLIER = "2026-01-01T00:00:00Z"
Slices = tuple[ResourceSlice, ...]


def devices(count: int, *, model: str = "A") -> tuple[Device, ...]:
    """Devices `d0`, `d1`..."""
    attributes = {"model": DeviceAttribute(string=model)}
    return tuple(Device(name=f"d{number}", attributes=attributes) for number in range(count))


def pool(*content: Device) -> Pool:
    """The wanted pool."""
    return Pool(name="n", driver="d.io", node_name="n", owner=OWNER, devices=content)


def taint(value: str = "major", *, time: str | None = None) -> DeviceTaint:
    """A taint."""
    return DeviceTaint(key="d.io/fault", value=value, effect="NoSchedule", time_added=time)


def tainted(device: Device, *taints: DeviceTaint) -> Device:
    """A device with taints."""
    return device.model_copy(update={"taints": taints})


def stored(
    name: str, *content: Device, generation: int = 1, count: int = 1, pool_name: str = "n"
) -> ResourceSlice:
    """A slice as the API server has it."""
    return ResourceSlice(
        metadata=ObjectMeta(
            name=name, uid=f"uid-{name}", resource_version="7", owner_references=(OWNER,)
        ),
        spec=ResourceSliceSpec(
            driver="d.io",
            node_name="n",
            pool=ResourcePool(name=pool_name, generation=generation, resource_slice_count=count),
            devices=content or None,
        ),
    )


def apply(slices: Slices, writes: tuple[Write, ...]) -> Slices:
    """The API server after the writes."""
    after = {item.metadata.name: item for item in slices}
    for number, write in enumerate(writes):
        meta = write.slice.metadata
        match write:
            case Delete():
                del after[meta.name]
            case Update():
                assert meta.name in after
                after[meta.name] = write.slice
            case Create():
                name = f"{meta.generate_name}x{number}"
                created = meta.model_copy(update={"name": name, "uid": f"uid-{name}"})
                after[name] = write.slice.with_metadata(created)
    return tuple(after.values())


def published(content: Pool) -> Slices:
    """The slices of a pool that was published at once."""
    return apply((), plan((), content))


def kinds(writes: tuple[Write, ...]) -> list[str]:
    """The writes by name, in order."""
    return [type(write).__name__ for write in writes]


def generations(slices: Slices) -> set[int]:
    """All generations."""
    return {item.spec.pool.generation for item in slices}


def test_a_slice_is_created() -> None:
    """Nothing exists: one create, first generation, named by its index."""
    (write,) = plan((), pool(*devices(2)))
    assert isinstance(write, Create)
    assert write.slice.metadata == ObjectMeta(
        generate_name="n-d.io-00000-", owner_references=(OWNER,)
    )
    assert write.slice.spec == ResourceSliceSpec(
        driver="d.io",
        node_name="n",
        pool=ResourcePool(name="n", generation=1, resource_slice_count=1),
        devices=devices(2),
    )


def test_an_unchanged_slice_is_kept() -> None:
    """What is as wanted is not written."""
    assert plan([stored("n-d.io-00000-a", *devices(2))], pool(*devices(2))) == ()


def test_an_unchanged_empty_pool_is_kept() -> None:
    """One slice without devices is the empty pool."""
    assert plan([stored("n-d.io-00000-a")], pool()) == ()


def test_no_devices_are_one_empty_slice() -> None:
    """The pool of a node without devices exists."""
    (write,) = plan((), pool())
    assert (write.slice.spec.devices, write.slice.spec.pool.resource_slice_count) == (None, 1)


def test_an_unchanged_taint_keeps_its_time() -> None:
    """The time that the server added is no difference."""
    (device,) = devices(1)
    existing = [stored("n-d.io-00000-a", tainted(device, taint(time=EARLIER)))]
    assert plan(existing, pool(tainted(device, taint()))) == ()


def test_an_added_taint_leaves_the_time_of_the_other() -> None:
    """Only the new taint gets its time from the server."""
    (device,) = devices(1)
    existing = [stored("n-d.io-00000-a", tainted(device, taint(time=EARLIER)))]
    (write,) = plan(existing, pool(tainted(device, taint(), taint("network"))))
    assert isinstance(write, Update)
    assert write.slice.spec.devices is not None
    assert write.slice.spec.devices[0].taints == (taint(time=EARLIER), taint("network"))


def test_a_changed_taint_gets_a_new_time() -> None:
    """Another value is another taint."""
    (device,) = devices(1)
    existing = [stored("n-d.io-00000-a", tainted(device, taint("minor", time=EARLIER)))]
    (write,) = plan(existing, pool(tainted(device, taint("major"))))
    assert write.slice.spec.devices is not None
    assert write.slice.spec.devices[0].taints == (taint("major"),)


def test_a_dropped_taint_is_written_away() -> None:
    """A device that is well again loses its taint."""
    (device,) = devices(1)
    existing = [stored("n-d.io-00000-a", tainted(device, taint(time=EARLIER)))]
    (write,) = plan(existing, pool(device))
    assert write.slice.spec.devices == (device,)


def test_a_taint_keeps_its_time_when_its_device_moves() -> None:
    """Also when the device comes into another slice."""
    many = devices(DEVICES_PER_SLICE + 1)
    marked = tainted(many[-1], taint(time=EARLIER))
    existing = published(pool(*many[:-1], marked))
    writes = plan(existing, pool(tainted(many[-1], taint())))
    (after,) = apply(existing, writes)
    assert after.spec.devices == (marked,)


def test_one_changed_slice_is_updated_in_place() -> None:
    """Its generation, name and version stay."""
    existing = stored("n-d.io-00000-a", *devices(2), generation=4)
    (write,) = plan([existing], pool(*devices(3)))
    assert isinstance(write, Update)
    assert write.slice.metadata == existing.metadata
    assert write.slice.spec.pool == existing.spec.pool
    assert write.slice.spec.devices == devices(3)


def test_an_owner_of_a_former_node_is_replaced() -> None:
    """A slice owned by a Node that was made anew is handed over before it is collected."""
    existing = stored("n-d.io-00000-a", *devices(1))
    heir = OWNER.model_copy(update={"uid": "u-2"})
    (write,) = plan([existing], replace(pool(*devices(1)), owner=heir))
    assert isinstance(write, Update)
    assert write.slice.metadata.owner_references == (heir,)


def test_a_pool_of_another_name_is_removed() -> None:
    """Slices of our driver and node under another pool's name go; the generation is not theirs."""
    existing = stored("n-d.io-00000-a", *devices(1), pool_name="old", generation=9)
    removed, made = plan([existing], pool(*devices(1)))
    assert removed == Delete(existing)
    assert isinstance(made, Create)
    assert made.slice.spec.pool.generation == 1


def test_a_redundant_slice_is_deleted() -> None:
    """Of two slices with one index the first by name stays."""
    first = stored("n-d.io-00000-a", *devices(1))
    second = stored("n-d.io-00000-b", *devices(1))
    assert plan([second, first], pool(*devices(1))) == (Delete(second),)


def test_slices_of_an_older_generation_are_deleted() -> None:
    """What a writer that died in the middle left behind is replaced."""
    many = pool(*devices(DEVICES_PER_SLICE + 1))
    first, second = published(many)
    ahead = first.spec.pool.model_copy(update={"generation": 2})
    first = first.model_copy(update={"spec": first.spec.model_copy(update={"pool": ahead})})
    writes = plan([first, second], many)
    assert kinds(writes) == ["Delete", "Update", "Create"]
    assert generations(apply((first, second), writes)) == {3}


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
    assert removed == Delete(existing)
    assert isinstance(made, Create)
    assert made.slice.spec.pool.generation == 4


def test_mixed_names_are_migrated() -> None:
    """A slice of ours beside one with a random name stays, in a new generation if need be."""
    many = pool(*devices(DEVICES_PER_SLICE + 1))
    first, second = published(many)
    foreign = stored("n-d.io-abcde", generation=1, count=2)
    assert kinds(plan([first, second, foreign], many)) == ["Delete"]
    writes = plan([first, foreign], many)
    assert kinds(writes) == ["Delete", "Update", "Create"]
    assert generations(apply((first, foreign), writes)) == {2}


def test_devices_are_split_at_the_limit() -> None:
    """Each slice says how many there are."""
    many = devices(2 * DEVICES_PER_SLICE + 1)
    slices = published(pool(*many))
    assert [len(item.spec.devices or ()) for item in slices] == [64, 64, 1]
    assert {item.spec.pool.resource_slice_count for item in slices} == {3}
    assert [index_in(item.metadata.name, "n", "d.io") for item in slices] == [0, 1, 2]


MANY = 3 * DEVICES_PER_SLICE


def changed(*numbers: int) -> tuple[Device, ...]:
    """Three slices' devices, of which some differ."""
    return tuple(
        after if number in numbers else before
        for number, (before, after) in enumerate(
            zip(devices(MANY), devices(MANY, model="B"), strict=True)
        )
    )


@pytest.mark.parametrize(
    ("content", "expected", "generation"),
    [
        pytest.param(changed(), [], 1, id="no-changes"),
        pytest.param(changed(0), ["Update"], 1, id="one-changed"),
        pytest.param(changed(0, 1), ["Update"], 1, id="two-devices-of-one-slice"),
        pytest.param(changed(0, 64), ["Update"] * 3, 2, id="two-changed"),
        pytest.param(devices(MANY - 64), ["Delete", "Update", "Update"], 2, id="one-removed"),
        pytest.param(devices(64), ["Delete", "Delete", "Update"], 1, id="one-left"),
        pytest.param(devices(MANY + 1), [*["Update"] * 3, "Create"], 2, id="one-added"),
    ],
)
def test_many_slices_change_together(
    content: tuple[Device, ...], expected: list[str], generation: int
) -> None:
    """More than one write needs a generation that only complete pools have."""
    existing = published(pool(*devices(MANY)))
    writes = plan(existing, pool(*content))
    assert kinds(writes) == expected
    assert generations(apply(existing, writes)) == {generation}


def test_one_device_has_one_name() -> None:
    """A duplicate is refused before it is written."""
    with pytest.raises(Invalid, match="d0"):
        plan((), pool(*devices(1), *devices(1)))


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("n-d.io-00000-x", 0),
        ("n-d.io-0000a-x", 10),
        ("n-d.io-fffff-x", 0xFFFFF),
        ("n-d.io-0000-x", None),
        ("n-d.io-0000g-x", None),
        ("n-d.io-0000A-x", None),
        ("m-d.io-00000-x", None),
    ],
)
def test_the_index_is_read_from_the_name(name: str, index: int | None) -> None:
    """Five lower-case hex digits after our prefix."""
    assert index_in(name, "n", "d.io") == index


@given(
    node=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,200}[a-z0-9])?", fullmatch=True),
    index=st.integers(0, 0xFFFFF),
)
def test_the_index_survives_every_node_name(node: str, index: int) -> None:
    """The API server cuts generateName at 58 characters: the index is before that."""
    base = generate_name(node, "npu.huawei.com", index)
    assert len(base) <= 58
    assert index_in(f"{base}abcde", node, "npu.huawei.com") == index
    assert re.search(r"[a-z0-9]-[0-9a-f]{5}-$", base)


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
def test_a_plan_reaches_the_pool_and_then_rests(
    before: tuple[Device, ...], after: tuple[Device, ...]
) -> None:
    """From any pool to any other, in one complete generation, and a second plan is empty."""
    existing = published(pool(*before))
    reached = apply(existing, plan(existing, pool(*after)))
    assert len(generations(reached)) == 1
    assert {item.spec.pool.resource_slice_count for item in reached} == {len(reached)}
    in_order = sorted(reached, key=lambda item: item.metadata.name)
    assert tuple(d for item in in_order for d in item.spec.devices or ()) == after
    assert plan(reached, pool(*after)) == ()


@given(before=contents, after=contents, survivors=st.sets(st.integers(0, 6)))
def test_a_broken_off_write_is_recovered(
    before: tuple[Device, ...], after: tuple[Device, ...], survivors: set[int]
) -> None:
    """Whichever of the writes were made, planning again reaches the pool."""
    existing = published(pool(*before))
    writes = plan(existing, pool(*after))
    made = tuple(write for number, write in enumerate(writes) if number in survivors)
    halfway = apply(existing, made)
    reached = apply(halfway, plan(halfway, pool(*after)))
    assert len(generations(reached)) == 1
    assert plan(reached, pool(*after)) == ()
