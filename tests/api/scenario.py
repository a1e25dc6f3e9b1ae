"""What the conformance scenarios are made of."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import (
    CounterSet,
    Device,
    ObjectMeta,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

Scenario = Callable[[KubeClient], Awaitable[None]]
_RBAC = Path(__file__).parents[2] / "k8s/base/rbac.yaml"


def driver_rules() -> list[dict[str, Any]]:
    """The rules of the ClusterRole in the manifests."""
    documents = yaml.safe_load_all(_RBAC.read_text())
    rules: list[dict[str, Any]] = next(one for one in documents if one["kind"] == "ClusterRole")[
        "rules"
    ]
    return rules


def new_driver() -> str:
    """A driver name that no other scenario uses."""
    return f"d{uuid.uuid4().hex[:8]}.example.com"


def slice_of(driver: str, *devices: Device, node: str = "node-1") -> ResourceSlice:
    """A slice to be created."""
    return ResourceSlice(
        metadata=ObjectMeta(generate_name=f"{node}-{driver}-00000-"),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=node,
            pool=ResourcePool(name=node, generation=1, resource_slice_count=1),
            devices=devices,
        ),
    )


def with_counters(item: ResourceSlice, *sets: CounterSet) -> ResourceSlice:
    """The slice with counter sets too."""
    spec = item.spec.model_copy(update={"shared_counters": sets})
    return item.model_copy(update={"spec": spec})


async def stored(client: KubeClient, name: str) -> tuple[ResourceSlice, ...]:
    """The slice of that name, if it exists; the driver may list slices, not get them."""
    found, _ = await client.list(ResourceSlice, field_selector=f"metadata.name={name}")
    return found
