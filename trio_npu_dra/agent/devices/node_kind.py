"""What the pools of all nodes of one kind have in common, as autoscalers need it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.kit.api.objects import Device

D = TypeVar("D", bound=Device)

JOINING: Final = (
    fact_names.TOPOLOGY_GROUP,
    fact_names.MODULE,
    fact_names.PCIE_ROOT,
    fact_names.NUMA_NODE,
    fact_names.STANDARD_NUMA_NODE,
)
"""Attributes that say which devices belong together; their values may differ from node to node."""

_OF_KIND: Final = frozenset(
    {
        fact_names.TYPE,
        fact_names.MODEL,
        fact_names.CHIP_NAME,
        fact_names.PRODUCT_NAME,
        fact_names.NPU_NAME,
        fact_names.PHYSICAL_ID,
        fact_names.DEVICE_ID,
        fact_names.TEMPLATE,
        fact_names.MULTI_DIE_POLICY,
    }
)
"""Attributes with the same values on all nodes of a kind. A new one may be the node's own."""


def of_kind(device: D) -> D:
    """The device without what is its node's own: ids, addresses, versions, health.

    The attributes of `JOINING` stay, with the values of this node.
    """
    attributes = {
        name: value
        for name, value in device.attributes.items()
        if name in _OF_KIND or name in JOINING
    }
    return device.model_copy(update={"attributes": attributes, "taints": ()})


def unjoined(device: D) -> D:
    """The device without the attributes of `JOINING`."""
    attributes = {name: value for name, value in device.attributes.items() if name not in JOINING}
    return device.model_copy(update={"attributes": attributes})


def joined(devices: Iterable[Device]) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """The names of the devices that have one value, for each attribute of `JOINING`.

    A value that only one device has joins nothing and is left out.
    """
    groups: dict[str, dict[object, list[str]]] = {}
    for device in devices:
        for name in JOINING:
            if name in device.attributes:
                of_value = groups.setdefault(name, {})
                of_value.setdefault(device.attributes[name].value, []).append(device.name)
    return {
        name: found
        for name in JOINING
        if (found := tuple(tuple(one) for one in groups.get(name, {}).values() if len(one) > 1))
    }
