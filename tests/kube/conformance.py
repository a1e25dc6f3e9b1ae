"""What this driver asks of any API server, as scenarios that take a client.

They run against the stand-in here and can run against a real kube-apiserver: each uses a driver
name of its own and leaves nothing behind that another would see.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import anyio
import pytest

from trio_npu_dra.errors import Conflict, Invalid, NotFound
from trio_npu_dra.kube.client import EventType, KubeClient
from trio_npu_dra.kube.objects import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    Node,
    ObjectMeta,
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

Scenario = Callable[[KubeClient], Awaitable[None]]


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
            devices=devices or None,
        ),
    )


async def a_created_object_gets_name_uid_and_version(client: KubeClient) -> None:
    """The answer to a create is the stored object, and get returns the same."""
    driver = new_driver()
    made = await client.create(slice_of(driver, Device(name="npu-0")))
    assert made.metadata.name.startswith(f"node-1-{driver}-00000-")
    assert made.metadata.uid
    assert made.metadata.resource_version
    assert await client.get(ResourceSlice, made.metadata.name) == made


async def a_dry_run_stores_nothing(client: KubeClient) -> None:
    """A dry run shows what would be stored, and the list stays empty."""
    driver = new_driver()
    shown = await client.create(slice_of(driver, Device(name="npu-0")), dry_run=True)
    assert shown.spec.devices == (Device(name="npu-0"),)
    stored, _ = await client.list(ResourceSlice, field_selector=f"spec.driver={driver}")
    assert stored == ()


async def quantities_come_back_canonical(client: KubeClient) -> None:
    """32768Mi is stored as 32Gi."""
    device = Device(name="npu-0", capacity={"memCapacity": DeviceCapacity(value="32768Mi")})
    made = await client.create(slice_of(new_driver(), device), dry_run=True)
    assert made.spec.devices is not None
    assert made.spec.devices[0].capacity == {"memCapacity": DeviceCapacity(value="32Gi")}


async def a_taint_gets_its_time(client: KubeClient) -> None:
    """The API server notes when a taint was added."""
    taint = DeviceTaint(key="example.com/fault", effect="NoSchedule")
    made = await client.create(
        slice_of(new_driver(), Device(name="npu-0", taints=(taint,))), dry_run=True
    )
    assert made.spec.devices is not None
    assert made.spec.devices[0].taints is not None
    assert made.spec.devices[0].taints[0].time_added


async def a_missing_object_is_not_found(client: KubeClient) -> None:
    """Get, update and delete of what does not exist say so, with its name."""
    with pytest.raises(NotFound, match="nowhere"):
        await client.get(Node, "nowhere")
    with pytest.raises(NotFound, match="absent"):
        await client.get(ResourceClaim, "absent", "default")
    with pytest.raises(NotFound):
        await client.delete(ResourceSlice, "nowhere")


async def an_invalid_object_is_refused_with_the_field(client: KubeClient) -> None:
    """The words of the API server's validation reach the caller."""
    with pytest.raises(Invalid, match=r"spec\.devices"):
        await client.create(slice_of(new_driver(), Device(name="NPU_0")))
    version = DeviceAttribute(version="24.1.rc2")
    with pytest.raises(Invalid, match="version"):
        await client.create(
            slice_of(new_driver(), Device(name="npu-0", attributes={"driverVersion": version}))
        )


async def a_name_exists_once(client: KubeClient) -> None:
    """A second create of one name is a conflict."""
    made = await client.create(slice_of(new_driver()))
    again = made.with_metadata(ObjectMeta(name=made.metadata.name))
    with pytest.raises(Conflict, match="already exists"):
        await client.create(again)


async def an_update_needs_the_newest_version(client: KubeClient) -> None:
    """Of two writers that read the same version, the second one is refused."""
    made = await client.create(slice_of(new_driver(), Device(name="npu-0")))
    spec = made.spec.model_copy(update={"devices": (Device(name="npu-1"),)})
    changed = await client.update(made.model_copy(update={"spec": spec}))
    assert changed.metadata.resource_version != made.metadata.resource_version
    with pytest.raises(Conflict):
        await client.update(made)


async def an_equal_update_changes_nothing(client: KubeClient) -> None:
    """Writing what is stored keeps the version, so no watcher is woken."""
    made = await client.create(slice_of(new_driver(), Device(name="npu-0")))
    assert await client.update(made) == made


async def a_delete_keeps_its_preconditions(client: KubeClient) -> None:
    """An object that changed or was replaced since it was read is not deleted."""
    made = await client.create(slice_of(new_driver(), Device(name="npu-0")))
    name = made.metadata.name
    with pytest.raises(Conflict):
        await client.delete(ResourceSlice, name, uid=str(uuid.uuid4()))
    with pytest.raises(Conflict):
        await client.delete(ResourceSlice, name, resource_version="1")
    await client.delete(
        ResourceSlice,
        name,
        uid=made.metadata.uid,
        resource_version=made.metadata.resource_version,
    )
    with pytest.raises(NotFound):
        await client.get(ResourceSlice, name)


async def a_list_selects_by_driver_and_node(client: KubeClient) -> None:
    """Slices of other drivers and nodes stay out."""
    driver = new_driver()
    mine = await client.create(slice_of(driver))
    await client.create(slice_of(driver, node="node-2"))
    await client.create(slice_of(new_driver()))
    selector = f"spec.driver={driver},spec.nodeName=node-1"
    listed, version = await client.list(ResourceSlice, field_selector=selector)
    assert listed == (mine,)
    assert version


async def a_watch_tells_each_change_in_order(client: KubeClient) -> None:
    """From the list's version on, nothing is missed, nothing of others is told."""
    driver = new_driver()
    selector = f"spec.driver={driver}"
    _, version = await client.list(ResourceSlice, field_selector=selector)
    made = await client.create(slice_of(driver, Device(name="npu-0")))
    await client.create(slice_of(new_driver()))
    with anyio.fail_after(10):
        async with client.watch(
            ResourceSlice, field_selector=selector, resource_version=version
        ) as events:
            added = await anext(events)
            spec = made.spec.model_copy(update={"devices": None})
            changed = await client.update(made.model_copy(update={"spec": spec}))
            modified = await anext(events)
            await client.delete(ResourceSlice, made.metadata.name)
            deleted = await anext(events)
    assert (added.type, added.object) == (EventType.ADDED, made)
    assert (modified.type, modified.object) == (EventType.MODIFIED, changed)
    assert deleted.type is EventType.DELETED
    assert int(deleted.resource_version) > int(modified.resource_version)


SCENARIOS: tuple[Scenario, ...] = (
    a_created_object_gets_name_uid_and_version,
    a_dry_run_stores_nothing,
    quantities_come_back_canonical,
    a_taint_gets_its_time,
    a_missing_object_is_not_found,
    an_invalid_object_is_refused_with_the_field,
    a_name_exists_once,
    an_update_needs_the_newest_version,
    an_equal_update_changes_nothing,
    a_delete_keeps_its_preconditions,
    a_list_selects_by_driver_and_node,
    a_watch_tells_each_change_in_order,
)
