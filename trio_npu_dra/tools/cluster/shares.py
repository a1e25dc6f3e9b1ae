"""What an allocation takes of a device's capacities, by the policies of its owner."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from trio_npu_dra.kit.api.objects import CapacityPolicy, CapacityRange, Device, DeviceCapacity
from trio_npu_dra.kit.api.quantity import canonical_quantity, parse_quantity


def share_of(device: Device, requests: Mapping[str, str]) -> dict[str, Fraction] | None:
    """What is taken of each capacity.

    Returns:
        None if the device lacks a capacity that is asked for, or a policy forbids the amount.
    """
    if not set(requests) <= set(device.capacity):
        return None
    found = {}
    for name, capacity in device.capacity.items():
        amount = _amount(requests.get(name), capacity)
        if not _is_allowed(amount, capacity.request_policy):
            return None
        found[name] = amount
    return found


def fits(device: Device, share: Mapping[str, Fraction], in_use: Mapping[str, Fraction]) -> bool:
    """Whether a share fits beside what is in use."""
    nothing = Fraction(0)
    return all(
        share[name] + in_use.get(name, nothing) <= parse_quantity(capacity.value)
        for name, capacity in device.capacity.items()
    )


def _amount(asked: str | None, capacity: DeviceCapacity) -> Fraction:
    policy = capacity.request_policy
    if asked is None:
        default = policy.default if policy else None
        return parse_quantity(default if default is not None else capacity.value)
    amount = parse_quantity(asked)
    if policy is None:
        return amount
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded(amount, policy.valid_range)
    larger = (parse_quantity(value) for value in policy.valid_values or ())
    return next((value for value in larger if amount <= value), amount)


def _rounded(amount: Fraction, bounds: CapacityRange) -> Fraction:
    least = parse_quantity(bounds.min or "0")
    if amount < least:
        return least
    if bounds.step is None:
        return amount
    step = parse_quantity(bounds.step)
    return least + ceil((amount - least) / step) * step


def _is_allowed(amount: Fraction, policy: CapacityPolicy | None) -> bool:
    if policy is None or (policy.default and amount == parse_quantity(policy.default)):
        return True
    if policy.valid_range is not None:
        bounds = policy.valid_range
        if bounds.max is not None and amount > parse_quantity(bounds.max):
            return False
        if bounds.step is None:
            return True
        return (amount - parse_quantity(bounds.min or "0")) % parse_quantity(bounds.step) == 0
    if policy.valid_values:
        return amount in {parse_quantity(value) for value in policy.valid_values}
    return True


def quantity_words(amount: Fraction) -> str:
    """An amount for people: the largest binary suffix that divides it, else a plain number."""
    if amount.denominator != 1:
        return f"{float(amount):g}"
    whole = int(amount)
    return canonical_quantity(whole) if whole % 1024 == 0 else str(whole)
