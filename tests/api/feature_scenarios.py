"""The conformance scenarios about taints, counters and shares."""

from __future__ import annotations

import re

import pytest

from tests.api.invalid_slices import INVALID_COUNTERS, INVALID_SHARES, INVALID_TAINTS
from tests.api.scenario import Scenario, new_driver, slice_of, with_counters
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import (
    CapacityPolicy,
    CapacityRange,
    Counter,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)
from trio_npu_dra.kit.base.errors import Invalid


async def a_taint_gets_its_time(client: KubeClient) -> None:
    """The API server notes when a taint was added."""
    taint = DeviceTaint(key="example.com/fault", effect="NoSchedule")
    made = await client.create(
        slice_of(new_driver(), Device(name="npu-0", taints=(taint,))), dry_run=True
    )
    assert made.spec.devices[0].taints[0].time_added


async def counters_are_kept(client: KubeClient) -> None:
    """Sets and devices are in slices of their own, with canonical quantities.

    The API server does not check that a device's counters exist.
    """
    taken = DeviceCounterConsumption(counter_set="s", counters={"memory": Counter(value="1024Mi")})
    made = await client.create(
        slice_of(new_driver(), Device(name="npu-0", consumes_counters=(taken,))), dry_run=True
    )
    kept = taken.model_copy(update={"counters": {"memory": Counter(value="1Gi")}})
    assert made.spec.devices == (Device(name="npu-0", consumes_counters=(kept,)),)
    wanted = with_counters(slice_of(new_driver()), CounterSet(name="s", counters=taken.counters))
    made = await client.create(wanted, dry_run=True)
    assert made.spec.shared_counters == (CounterSet(name="s", counters=kept.counters),)


async def shares_are_kept(client: KubeClient) -> None:
    """A device may be allocated several times, each time with as much as its policy says."""
    unit = CapacityRange(min="0", step="1Mi")
    policy = CapacityPolicy(default="1024Mi", valid_range=unit)
    memory = DeviceCapacity(value="8192Mi", request_policy=policy)
    device = Device(name="npu-0", allow_multiple_allocations=True, capacity={"memory": memory})
    made = await client.create(slice_of(new_driver(), device), dry_run=True)
    kept = DeviceCapacity(
        value="8Gi", request_policy=CapacityPolicy(default="1Gi", valid_range=unit)
    )
    assert made.spec.devices == (device.model_copy(update={"capacity": {"memory": kept}}),)


async def an_invalid_feature_is_refused_with_the_field(client: KubeClient) -> None:
    """Taints lower the limits of the slice; an allocation of a share has to fit the capacity."""
    for devices, words in (*INVALID_TAINTS, *INVALID_SHARES):
        with pytest.raises(Invalid, match=re.escape(words)):
            await client.create(slice_of(new_driver(), *devices))
    for devices, sets, words in INVALID_COUNTERS:
        with pytest.raises(Invalid, match=re.escape(words)):
            await client.create(with_counters(slice_of(new_driver(), *devices), *sets))


AS_DRIVER_WITH_FEATURES: tuple[Scenario, ...] = (
    a_taint_gets_its_time,
    counters_are_kept,
    shares_are_kept,
    an_invalid_feature_is_refused_with_the_field,
)
"""For API servers that keep taints, counters and shares: all since 1.36."""
