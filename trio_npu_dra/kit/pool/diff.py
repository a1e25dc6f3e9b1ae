"""The writes that make the existing slices the wanted pool; pure.

The rules are those of the resource slice controller in k8s.io/dynamic-resource-allocation, so that
schedulers see the same of this driver as of others.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from trio_npu_dra.kit.api.objects import ObjectMeta, ResourceSlice, ResourceSliceSpec
from trio_npu_dra.kit.pool.pool import Pool, check, generate_name, index_in, specs
from trio_npu_dra.kit.pool.taint_times import with_known_times


@dataclass(frozen=True, slots=True)
class Write:
    """One write to the API server.

    Attributes:
        verb: `delete` and `update` ask that the slice still has the uid and the version that were
            read.
        slice: Which one; for `update` and `create` as it is to be.
    """

    verb: Literal["delete", "update", "create"]
    slice: ResourceSlice


LAST: Final = 2**63 - 1
"""The last generation that there can be: Kubernetes has an int64."""


def plan(
    existing: Iterable[ResourceSlice],
    desired: Pool,
    stored_as: Callable[[ResourceSliceSpec], ResourceSliceSpec] = lambda spec: spec,
    *,
    newest: int = 0,
    floor: int = 1,
) -> tuple[Write, ...]:
    """The writes that make *existing* the *desired* pool, in their order; none if it is already.

    Deletes come first and creates last, so that at no moment one device is in two slices of the
    newest generation.

    Args:
        existing: All slices of the driver on the node.
        desired: The pool that is wanted.
        stored_as: The stored form of a spec, as far as known.
        newest: The highest generation that is known to have been there.
        floor: The lowest generation that a new one may have.

    Raises:
        InvalidPool: The pool contradicts itself.
    """
    check(desired)
    found = sorted(existing, key=lambda item: item.metadata.name)
    desired = replace(desired, devices=with_known_times(desired.devices, found))
    owners = (desired.owner,)
    # A generation without a next one was not written by us: its slices are replaced.
    generations = {
        item.metadata.name: item.spec.pool.generation
        for item in found
        if item.spec.pool.name == desired.node_name and item.spec.pool.generation < LAST
    }
    present = max(generations.values(), default=0)
    newest = max(newest, present)
    wanted = specs(desired, present)
    kept: dict[int, ResourceSlice] = {}
    for item in found:
        index = index_in(item.metadata.name, desired.node_name, desired.driver)
        is_newest = generations.get(item.metadata.name) == present
        if is_newest and index is not None and index < len(wanted):
            kept.setdefault(index, item)  # of two with one index the first by name stays
    changed = {
        index
        for index, item in kept.items()
        if item.metadata.owner_references != owners or item.spec != stored_as(wanted[index])
    }
    if len(kept) < len(wanted) or len(changed) > 1 or present < newest:
        # A reader takes a pool only when all slices of its newest generation are there, so a new
        # generation hides the pool until the last of these writes. One update needs none.
        wanted = specs(desired, max(newest + 1, floor))
        changed = set(kept)
    writes = [Write("delete", item) for item in found if item not in kept.values()]
    for index in sorted(changed):
        metadata = kept[index].metadata.model_copy(update={"owner_references": owners})
        writes.append(Write("update", ResourceSlice(metadata=metadata, spec=wanted[index])))
    for index in sorted(set(range(len(wanted))) - kept.keys()):
        name = generate_name(desired.node_name, desired.driver, index)
        metadata = ObjectMeta(generate_name=name, owner_references=owners)
        writes.append(Write("create", ResourceSlice(metadata=metadata, spec=wanted[index])))
    return tuple(writes)
