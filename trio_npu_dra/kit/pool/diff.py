"""The writes that make the existing slices the wanted pool; pure.

The rules are those of the resource slice controller in k8s.io/dynamic-resource-allocation, so that
schedulers see the same of this driver as of others. Slices are matched by the index in their name.
One changed slice is updated in place. Any larger change gives every slice a new generation, because
a reader takes a pool only when all slices of its newest generation are there.
docs/upstream-cases.md has that controller's test cases and ours side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from trio_npu_dra.kit.api.objects import ObjectMeta, ResourceSlice, ResourceSliceSpec
from trio_npu_dra.kit.pool.names import generate_name, index_in
from trio_npu_dra.kit.pool.pool import Pool, check, specs
from trio_npu_dra.kit.pool.taint_times import with_known_times


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove this slice if it is still as it was read."""

    slice: ResourceSlice


@dataclass(frozen=True, slots=True)
class Update:
    """Replace a slice if it still has the uid and the version in its metadata, which were read."""

    slice: ResourceSlice


@dataclass(frozen=True, slots=True)
class Create:
    """Make a new slice."""

    slice: ResourceSlice


Write = Delete | Update | Create

_LAST: Final = 2**63 - 1
"""The last generation that there can be: Kubernetes has an int64."""


def plan(
    existing: Iterable[ResourceSlice],
    desired: Pool,
    stored_as: Callable[[ResourceSliceSpec], ResourceSliceSpec] = lambda spec: spec,
) -> tuple[Write, ...]:
    """The writes that make *existing* the *desired* pool, in their order; none if it is already.

    Deletes come first and creates last, so that at no moment one device is in two slices of the
    newest generation.

    Args:
        existing: All slices of the driver on the node.
        desired: The pool that is wanted.
        stored_as: The stored form of a spec, as far as known.

    Raises:
        InvalidPool: The pool contradicts itself.
    """
    check(desired)
    found = sorted(existing, key=lambda item: item.metadata.name)
    desired = replace(desired, devices=with_known_times(desired.devices, found))
    newest = max((_generation(item, desired) for item in found), default=0)
    wanted = specs(desired, newest)
    kept = _kept(found, desired, newest, len(wanted))
    changed = {
        index for index, item in kept.items() if _differs(item, stored_as(wanted[index]), desired)
    }
    if len(kept) < len(wanted) or len(changed) > 1:
        wanted = specs(desired, newest + 1)
        changed = set(kept)
    obsolete = [item for item in found if item not in kept.values()]
    return (
        *(Delete(item) for item in obsolete),
        *(Update(_updated(kept[index], wanted[index], desired)) for index in sorted(changed)),
        *(
            Create(_created(index, spec, desired))
            for index, spec in enumerate(wanted)
            if index not in kept
        ),
    )


def _generation(item: ResourceSlice, desired: Pool) -> int:
    """That of a slice of the pool; what has no next one was not written by us, and is replaced."""
    pool = item.spec.pool
    return pool.generation if pool.name == desired.name and pool.generation < _LAST else 0


def _kept(
    found: Collection[ResourceSlice], desired: Pool, newest: int, count: int
) -> dict[int, ResourceSlice]:
    """The slices that stay, by index. If two have the same index, the first by name stays."""
    kept: dict[int, ResourceSlice] = {}
    for item in found:
        index = index_in(item.metadata.name, desired.node_name, desired.driver)
        is_ours = item.spec.pool.name == desired.name and item.spec.pool.generation == newest
        if is_ours and index is not None and index < count:
            kept.setdefault(index, item)
    return kept


def _differs(item: ResourceSlice, expected: ResourceSliceSpec, desired: Pool) -> bool:
    empty_is_none = {
        "devices": item.spec.devices or None,
        "shared_counters": item.spec.shared_counters or None,
    }
    same_owner = item.metadata.owner_references == (desired.owner,)
    return not same_owner or item.spec.model_copy(update=empty_is_none) != expected


def _updated(item: ResourceSlice, spec: ResourceSliceSpec, desired: Pool) -> ResourceSlice:
    metadata = item.metadata.model_copy(update={"owner_references": (desired.owner,)})
    return ResourceSlice(metadata=metadata, spec=spec)


def _created(index: int, spec: ResourceSliceSpec, desired: Pool) -> ResourceSlice:
    metadata = ObjectMeta(
        generate_name=generate_name(desired.node_name, desired.driver, index),
        owner_references=(desired.owner,),
    )
    return ResourceSlice(metadata=metadata, spec=spec)
