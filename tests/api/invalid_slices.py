"""Devices that a slice cannot have, with the field and message of a real API server's refusal."""

from __future__ import annotations

from typing import Any

from trio_npu_dra.kit.api.objects import (
    CapacityPolicy,
    CapacityRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)

Refused = tuple[tuple[Device, ...], str]


def _devices(count: int = 1, **fields: Any) -> tuple[Device, ...]:
    return tuple(Device(name=f"npu-{number}", **fields) for number in range(count))


def _attributes(**values: DeviceAttribute) -> tuple[Device, ...]:
    return _devices(attributes=values)


_TEXT = DeviceAttribute(string="a")
INVALID: tuple[Refused, ...] = (
    ((Device(name="NPU_0"),), 'spec.devices[0].name: Invalid value: "NPU_0"'),
    ((Device(name="a"), Device(name="a")), 'spec.devices[1]: Duplicate value: "a"'),
    (
        _attributes(driverVersion=DeviceAttribute(version="24.1.rc2")),
        'spec.devices[0].attributes[driverVersion].version: Invalid value: "24.1.rc2": must be a',
    ),
    (
        _attributes(model=DeviceAttribute(string="a" * 65)),
        "spec.devices[0].attributes[model].string: Too long: may not be more than 64 bytes",
    ),
    (_attributes(**{"1x": _TEXT}), 'spec.devices[0].attributes: Invalid value: "1x"'),
    (_attributes(x=DeviceAttribute()), "spec.devices[0].attributes[x]: Invalid value: "),
    (
        _attributes(**{f"x{number}": _TEXT for number in range(33)}),
        "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities",
    ),
    (
        _devices(capacity={"memory": DeviceCapacity(value="much")}),
        "quantities must match the regular expression",
    ),
    (_devices(129), "spec.devices: Too many: 129: must have at most 128 items"),
)
_OF_34 = {
    'spec.devices[1]: Duplicate value: "a"': 'spec.devices[1].name: Duplicate value: "a"',
    'spec.devices[0].attributes: Invalid value: "1x"': (
        'spec.devices[0].attributes[1x]: Invalid value: "1x"'
    ),
    "spec.devices[0].attributes[x]: Invalid value: ": (
        "spec.devices[0].attributes[x]: Required value: exactly one value must be specified"
    ),
}
"""Messages that 1.34 has instead."""


def invalid(minor: int) -> tuple[Refused, ...]:
    """What Kubernetes 1.*minor* refuses without its newer features too."""
    if minor >= 35:
        return INVALID
    return tuple((devices, _OF_34.get(words, words)) for devices, words in INVALID)


INVALID_TAINTS: tuple[Refused, ...] = (
    (
        _devices(taints=(DeviceTaint(key="example.com/a", effect="Never"),)),
        'spec.devices[0].taints[0].effect: Unsupported value: "Never": supported values: "NoEx',
    ),
    (
        _devices(65, taints=(DeviceTaint(key="a", effect="NoSchedule"),)),
        "spec.devices: Too many: 65: must have at most 64 items",
    ),
    (
        _devices(
            taints=tuple(DeviceTaint(key=f"a/{number}", effect="None") for number in range(17))
        ),
        "spec.devices[0].taints: Too many: 17: must have at most 16 items",
    ),
)


def _counters(**values: str) -> dict[str, Counter]:
    return {name: Counter(value=value) for name, value in values.items()}


def _sets(count: int, **values: str) -> tuple[CounterSet, ...]:
    counters = _counters(**values)
    return tuple(CounterSet(name=f"s{number}", counters=counters) for number in range(count))


def _consumers(count: int, sets: int, **values: str) -> tuple[Device, ...]:
    taken = tuple(
        DeviceCounterConsumption(counter_set=f"s{number}", counters=_counters(**values))
        for number in range(sets)
    )
    return _devices(count, consumes_counters=taken)


INVALID_COUNTERS: tuple[tuple[tuple[Device, ...], tuple[CounterSet, ...], str], ...] = (
    (_devices(), _sets(1, memory="8Gi"), "only one of `sharedCounters` or `devices` is allowed"),
    ((), _sets(9, memory="8Gi"), "spec.sharedCounters: Too many: 9: must have at most 8 items"),
    ((), _sets(1, aiCores="8"), 'Invalid value: "aiCores": a lowercase RFC 1123 label must'),
    ((), _sets(1), "spec.sharedCounters[0].counters: Required value"),
    (
        (),
        _sets(1, **{f"c{number}": "1" for number in range(33)}),
        "spec.sharedCounters[0].counters: Too many: 33: must have at most 32 items",
    ),
    (
        _consumers(1, 3, memory="8Gi"),
        (),
        "spec.devices[0].consumesCounters: Too many: 3: must have at most 2 items",
    ),
    (_consumers(1, 1), (), "spec.devices[0].consumesCounters[0].counters: Required value"),
    (
        _consumers(65, 1, memory="8Gi"),
        (),
        "spec.devices: Too many: 65: must have at most 64 items",
    ),
)


def _shared(
    default: str, least: str, step: str | None = None, *, shared: bool | None = True
) -> tuple[Device, ...]:
    policy = CapacityPolicy(default=default, valid_range=CapacityRange(min=least, step=step))
    capacity = {"shares": DeviceCapacity(value="8", request_policy=policy)}
    return _devices(allow_multiple_allocations=shared, capacity=capacity)


_POLICY = "spec.devices[0].capacity[shares].requestPolicy"
INVALID_SHARES: tuple[Refused, ...] = (
    (
        _shared("1", "1", shared=None),
        f"{_POLICY}: Forbidden: allowMultipleAllocations must be true",
    ),
    (_shared("1", "2"), f'{_POLICY}.validRange.min: Invalid value: "1": default is less than min'),
    (
        _shared("1", "1", "8"),
        f'{_POLICY}.validRange.step: Invalid value: "8": one step 9 is larger',
    ),
    (
        _shared("2", "1", "2"),
        f'{_POLICY}.validRange.step: Invalid value: "2": value is not a multiple of a given step',
    ),
)
