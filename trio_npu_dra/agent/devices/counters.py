"""Counter sets of a pool, and what devices take from them; pure.

A chip that can be cut has a counter set of its own, with its name. Its partitions take from it, and
so does the whole chip: schedulers then hand out together only what can exist together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.kit.api.objects import Counter, CounterSet, DeviceCounterConsumption
from trio_npu_dra.kit.api.quantity import canonical_quantity

log = logging.getLogger(__name__)


def consumption(chip: str, takes: Mapping[str, int]) -> tuple[DeviceCounterConsumption, ...]:
    """What a device takes from its chip's counter set."""
    if not takes:
        return ()
    return (DeviceCounterConsumption(counter_set=chip, counters=_counters(takes)),)


def build_counter_sets(
    offered: Iterable[Offer], left_out: Iterable[Offer] = ()
) -> tuple[CounterSet, ...]:
    """One set for each chip that can be cut, in the order of the offers.

    A set lacks the counters that *left_out* takes: held offers that cannot be published, so that
    schedulers do not see what they take.
    """
    amounts = {offer.chips[0].name: dict(offer.of) for offer in offered if offer.of}
    for offer in left_out:
        for counter, amount in offer.takes.items():
            has = amounts[offer.chips[0].name]
            has[counter] = max(0, has[counter] - amount)
    return tuple(CounterSet(name=chip, counters=_counters(has)) for chip, has in amounts.items())


def without_counters(offered: Iterable[Offer]) -> tuple[Offer, ...]:
    """The offers for an API server that keeps no counters: no partition.

    A chip with a held partition is left out: a scheduler would allocate it whole.
    """
    offered = tuple(offered)
    if left_out := tuple(offer.name for offer in offered if offer.takes and offer.partition):
        _warn_left_out(left_out)
    cut = {
        node
        for offer in offered
        if offer.partition and offer.partition.vnpu is not None
        for node in offer.device_nodes
    }
    return tuple(
        replace(offer, takes={}, of={})
        for offer in offered
        if not offer.takes or (not offer.partition and cut.isdisjoint(offer.device_nodes))
    )


@lru_cache(maxsize=16)
def _warn_left_out(names: tuple[str, ...]) -> None:
    """Log once in a process that partitions are left out; pools are built again and again."""
    log.warning(
        "the API server keeps no counters (feature gate DRAPartitionableDevices of Kubernetes 1.35 "
        "and later): no partition of an NPU is published, whole NPUs only",
        extra={"pieces": len(names), "first": names[0]},
    )


def _counters(amounts: Mapping[str, int]) -> dict[str, Counter]:
    return {
        name: Counter(value=canonical_quantity(amount)) for name, amount in sorted(amounts.items())
    }
