"""A pool as this driver wants it, and its layout in named slices; pure.

The name of a slice is `<node>-<driver>-<index>-<random>`. The index says which part of the pool it
is, so schedulers that sort slices by name go through the pool in its order.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from trio_npu_dra.kit.api.objects import (
    CounterSet,
    Device,
    OwnerReference,
    ResourcePool,
    ResourceSliceSpec,
)
from trio_npu_dra.kit.base.errors import InvalidPool

DEVICES_PER_SLICE = 64
"""The API server's limit once a device has taints or consumes counters; without it would be 128."""
COUNTER_SETS_PER_SLICE = 8
"""The API server's limit (resource.k8s.io/v1 ResourceSliceMaxCounterSets)."""

_BASE_LIMIT = 58
"""The API server cuts generateName at this length; a longer one would lose its index."""
_INDEX = re.compile(r"-([0-9a-f]{5})-")

P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolContent:
    """What a pool offers, on whatever node.

    Attributes:
        devices: In the order in which schedulers should prefer them.
        shared_counters: What devices that overlap consume from.
    """

    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(PoolContent):
    """All devices of one driver on one node.

    Attributes:
        driver: The driver's name.
        node_name: The node that has the devices; also the pool's name.
        owner: The object with which the slices are deleted.
    """

    driver: str
    node_name: str
    owner: OwnerReference


def check(content: PoolContent) -> None:
    """Refuse a pool that contradicts itself.

    The API server sees one slice at a time and accepts such pools; schedulers then skip them.

    Raises:
        InvalidPool: Names are not unique, or a device consumes what does not exist; the message
            names all such problems.
    """
    problems = [
        *(f"device {name} is in it twice" for name in _repeated(content.devices)),
        *(f"counter set {name} is in it twice" for name in _repeated(content.shared_counters)),
        *_unknown_counters(content),
    ]
    if problems:
        raise InvalidPool(f"the pool is not published: {'; '.join(problems)}")


def specs(pool: Pool, generation: int) -> tuple[ResourceSliceSpec, ...]:
    """The slices of a pool, at least one, in the order of their indices."""
    # Counter sets come first and without devices: from Kubernetes 1.35 on a slice has one or the
    # other. 1.34 wants both in one slice, and only with an alpha feature; the driver sends it none.
    counters = _chunks(pool.shared_counters, COUNTER_SETS_PER_SLICE)
    devices = _chunks(pool.devices, DEVICES_PER_SLICE)
    if not counters and not devices:
        devices = [()]  # without any slice, schedulers would not know the pool
    position = ResourcePool(
        name=pool.node_name,
        generation=generation,
        resource_slice_count=len(counters) + len(devices),
    )
    blank = ResourceSliceSpec(driver=pool.driver, node_name=pool.node_name, pool=position)
    return (
        *(blank.model_copy(update={"shared_counters": chunk}) for chunk in counters),
        *(blank.model_copy(update={"devices": chunk}) for chunk in devices),
    )


def generate_name(node_name: str, driver: str, index: int) -> str:
    """The generateName of a slice: the index in five hex digits, before what the server adds.

    If node and driver have long names, their end is cut, not the index.
    """
    return f"{_stem(node_name, driver)}-{index:05x}-"


def index_in(name: str, node_name: str, driver: str) -> int | None:
    """The index in the name of one of this node's slices; `None` if the name is not ours."""
    stem = _stem(node_name, driver)
    found = _INDEX.match(name.removeprefix(stem)) if name.startswith(stem) else None
    return int(found[1], 16) if found else None


def _stem(node_name: str, driver: str) -> str:
    return f"{node_name}-{driver}"[: _BASE_LIMIT - len("-00000-")].rstrip("-.")


def _repeated(parts: Iterable[Device | CounterSet]) -> list[str]:
    names = Counter(part.name for part in parts)
    return [name for name, count in names.items() if count > 1]


def _unknown_counters(content: PoolContent) -> Iterator[str]:
    known = {part.name: part.counters for part in content.shared_counters}
    for device in content.devices:
        for taken in device.consumes_counters:
            source = taken.counter_set
            if source not in known:
                yield f"device {device.name} consumes from an unknown counter set {source}"
                continue
            for counter in taken.counters.keys() - known[source].keys():
                yield f"device {device.name} consumes an unknown counter {counter} of {source}"


def _chunks(parts: tuple[P, ...], size: int) -> list[tuple[P, ...]]:
    return [parts[start : start + size] for start in range(0, len(parts), size)]
