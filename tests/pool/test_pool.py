"""A pool: what is refused, how it is laid out in slices, and their names."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.pool.pools import counter_sets, devices, pool
from trio_npu_dra.kit.api.objects import Counter, Device, DeviceCounterConsumption
from trio_npu_dra.kit.base.errors import InvalidPool
from trio_npu_dra.kit.pool.pool import check, generate_name, index_in, specs


@pytest.mark.parametrize("content", [(), devices(1)])
def test_counter_sets_come_first_in_slices_of_their_own(content: tuple[Device, ...]) -> None:
    """Eight a slice, and without the field of devices: an empty list would be refused."""
    sets = counter_sets(9)
    laid_out = specs(pool(*content, counters=sets), 1)
    assert [spec.shared_counters for spec in laid_out[:2]] == [sets[:8], sets[8:]]
    assert all("devices" not in spec.to_wire() for spec in laid_out[:2])
    assert [spec.devices for spec in laid_out[2:]] == ([content] if content else [])
    assert all("sharedCounters" not in spec.to_wire() for spec in laid_out[2:])
    assert {spec.pool.resource_slice_count for spec in laid_out} == {len(laid_out)}


def test_one_error_names_everything_that_is_wrong() -> None:
    """The reader need not try again to see the next mistake."""
    (sound,) = devices(1)
    greedy = sound.model_copy(
        update={
            "name": "d1",
            "consumes_counters": (
                DeviceCounterConsumption(counter_set="s9", counters={}),
                DeviceCounterConsumption(counter_set="s0", counters={"hbm": Counter(value="1Gi")}),
            ),
        }
    )
    with pytest.raises(InvalidPool) as refused:
        check(pool(sound, sound, greedy, counters=(*counter_sets(1), *counter_sets(1))))
    assert all(name in str(refused.value) for name in ("d0", "s0", "s9", "hbm"))


@given(
    node=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,200}[a-z0-9])?", fullmatch=True),
    index=st.integers(0, 0xFFFFF),
)
@example(node="n" * 253, index=0)
@example(node="n", index=0x186A0)
def test_the_index_survives_every_node_name(node: str, index: int) -> None:
    """The API server cuts generateName at 58 characters: the index is before that."""
    base = generate_name(node, "npu.huawei.com", index)
    assert len(base) <= 58
    assert index_in(f"{base}abcde", node, "npu.huawei.com") == index
    assert re.search(r"[a-z0-9]-[0-9a-f]{5}-$", base)


def test_a_name_is_used_as_far_as_it_fits() -> None:
    """51 characters of node and driver, and never a dot or a dash before the index."""
    assert generate_name("n" * 60, "npu.huawei.com", 10) == "n" * 51 + "-0000a-"
    assert generate_name("n" * 47, "npu.huawei.com", 0) == "n" * 47 + "-npu-00000-"


@pytest.mark.parametrize(
    "name", ["n-d.io-0000A-x", "n-d.io-100000-x", "m-d.io-00000-x", "-00000-x"]
)
def test_other_names_have_no_index(name: str) -> None:
    """Other nodes, other drivers, capitals: not ours."""
    assert index_in(name, "n", "d.io") is None
