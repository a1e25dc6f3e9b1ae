"""This driver's requirements of any API server, as scenarios that take a client.

They run against the stand-in (tests/api) and against a real kube-apiserver (tests/cluster). Each
uses a driver name of its own, so that none sees what another left behind. `AS_DRIVER` needs only
the rights of the manifests, which proves that those suffice.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from tests.api.claim_scenarios import devices_of_a_claim_have_a_status_each
from tests.api.invalid_slices import invalid
from tests.api.scenario import Scenario, new_driver, slice_of, stored
from tests.api.watch_scenarios import (
    a_bookmark_moves_a_quiet_watch_on,
    a_picture_follows_the_changes,
    a_picture_may_be_of_labels_in_a_namespace,
    a_watch_tells_each_change_in_order,
)
from trio_npu_dra.agent.report.labelled_node import ManagedMeta, ManagedNode
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import (
    Allocation,
    Device,
    DeviceCapacity,
    KubeObject,
    Node,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
)
from trio_npu_dra.kit.base.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unavailable,
    Unreadable,
)
from trio_npu_dra.lab.standins.api_state import ConfigMap


async def a_created_object_gets_name_uid_and_version(client: KubeClient) -> None:
    """The answer to a create is the stored object, as in a list; a name exists once."""
    driver = new_driver()
    made = await client.create(slice_of(driver, Device(name="npu-0")))
    assert made.metadata.name.startswith(f"node-1-{driver}-00000-")
    assert made.metadata.uid
    assert made.metadata.resource_version
    assert await stored(client, made.metadata.name) == (made,)
    with pytest.raises(Conflict, match="already exists"):
        await client.create(made.with_metadata(ObjectMeta(name=made.metadata.name)))


async def a_dry_run_stores_nothing(client: KubeClient) -> None:
    """It shows the object, with a long generateName cut to 58 characters, and a list is empty."""
    driver = new_driver()
    wanted = slice_of(driver, Device(name="npu-0")).with_metadata(
        ObjectMeta(generate_name="n" * 70)
    )
    shown = await client.create(wanted, dry_run=True)
    assert shown.spec.devices == (Device(name="npu-0"),)
    assert len(shown.metadata.name) == 63
    assert shown.metadata.name.startswith("n" * 58)
    listed, _ = await client.list(ResourceSlice, field_selector=f"spec.driver={driver}")
    assert listed == ()


async def a_dry_run_shows_dropped_fields(client: KubeClient) -> None:
    """The answer lacks fields that would not be stored: here, a status sent with a create."""
    claim = ResourceClaim(
        metadata=ObjectMeta(name="dry", namespace="default"),
        status=ResourceClaimStatus(allocation=Allocation()),
    )
    shown = await client.create(claim, dry_run=True)
    assert shown.metadata.uid
    assert shown.status in {None, ResourceClaimStatus()}
    with pytest.raises(NotFound):
        await client.get(ResourceClaim, "dry", "default")


async def quantities_come_back_canonical(client: KubeClient) -> None:
    """Each is written with the largest suffix of its own base that needs no fraction."""
    canonical = {
        "32768Mi": "32Gi",
        "1000Ki": "1000Ki",
        "1048576": "1048576",
        "1000": "1k",
        "1024": "1024",
        "20": "20",
        "0": "0",
    }
    capacity = {f"c{key}": DeviceCapacity(value=key) for key in canonical}
    made = await client.create(
        slice_of(new_driver(), Device(name="npu-0", capacity=capacity)), dry_run=True
    )
    assert made.spec.devices is not None
    assert made.spec.devices[0].capacity == {
        f"c{key}": DeviceCapacity(value=value) for key, value in canonical.items()
    }


async def a_missing_object_is_not_found(client: KubeClient) -> None:
    """Get, update and delete of a missing object say so, with its name."""
    with pytest.raises(NotFound, match='nodes "nowhere" not found'):
        await client.get(Node, "nowhere")
    with pytest.raises(NotFound, match=r'resourceclaims\.resource\.k8s\.io "absent" not found'):
        await client.get(ResourceClaim, "absent", "default")
    with pytest.raises(NotFound, match='"nowhere" not found'):
        await client.delete(ResourceSlice, "nowhere")
    with pytest.raises(NotFound, match='"nowhere" not found'):
        await client.update(slice_of(new_driver()).with_metadata(ObjectMeta(name="nowhere")))


async def a_path_that_is_not_served_is_no_missing_object(client: KubeClient) -> None:
    """The answer, as for a disabled group, is no Status, and no object counts as missing."""

    class Elsewhere(KubeObject):
        group_version = "nowhere.example.com/v1"
        kind_name = "Elsewhere"
        plural = "elsewheres"

    with pytest.raises(Unavailable, match=r"404 page not found \(HTTP 404\)"):
        await client.get(Elsewhere, "here")


async def an_invalid_slice_is_refused_with_the_field(client: KubeClient) -> None:
    """The message of the API server's validation reaches the caller."""
    for devices, words in invalid(await client.minor_version()):
        with pytest.raises(Invalid, match=re.escape(words)):
            await client.create(slice_of(new_driver(), *devices))
    made = slice_of(new_driver())
    with pytest.raises(Invalid, match=r'metadata\.name: Invalid value: "A_b"'):
        await client.create(made.with_metadata(ObjectMeta(name="A_b")))
    pool = made.spec.pool.model_copy(update={"resource_slice_count": 0})
    with pytest.raises(Invalid, match=r"spec\.pool\.resourceSliceCount: Invalid value: 0"):
        await client.create(
            made.model_copy(update={"spec": made.spec.model_copy(update={"pool": pool})})
        )


async def a_missing_right_is_forbidden(client: KubeClient) -> None:
    """The message names the verb and the resource that a role lacks."""
    with pytest.raises(Forbidden, match='cannot list resource "nodes"'):
        await client.list(Node)
    with pytest.raises(
        Forbidden, match=r'"node-1" is forbidden: .* cannot delete resource "nodes"'
    ):
        await client.delete(Node, "node-1")
    with pytest.raises(Forbidden, match='cannot watch resource "resourceclaims"'):
        async with client.watch(ResourceClaim, resource_version="1"):
            raise AssertionError


async def an_update_needs_the_newest_version(client: KubeClient) -> None:
    """An equal update keeps the version; a stale one, or one with another UID, is refused."""
    made = await client.create(slice_of(new_driver(), Device(name="npu-0")))
    assert await client.update(made) == made
    spec = made.spec.model_copy(update={"devices": (Device(name="npu-1"),)})
    changed = await client.update(made.model_copy(update={"spec": spec}))
    assert changed.metadata.resource_version != made.metadata.resource_version
    with pytest.raises(Conflict, match="the object has been modified"):
        await client.update(made)
    meta = made.metadata.model_copy(update={"uid": str(uuid.uuid4()), "resource_version": None})
    with pytest.raises(Conflict, match="UID in precondition"):
        await client.update(made.with_metadata(meta))


async def the_identity_of_a_slice_stays(client: KubeClient) -> None:
    """Driver, node and pool name cannot be changed."""
    made = await client.create(slice_of(new_driver()))
    other = ResourcePool(name="other", generation=1, resource_slice_count=1)
    for field, change in (
        ("spec.driver", {"driver": "other.example.com"}),
        ("spec.nodeName", {"node_name": "node-2"}),
        ("spec.pool.name", {"pool": other}),
    ):
        spec = made.spec.model_copy(update=change)
        with pytest.raises(Invalid, match=f"{field}: Invalid value: .* field is immutable"):
            await client.update(made.model_copy(update={"spec": spec}))


async def a_delete_keeps_its_preconditions(client: KubeClient) -> None:
    """An object that changed or was replaced since it was read is not deleted."""
    made = await client.create(slice_of(new_driver(), Device(name="npu-0")))
    name = made.metadata.name
    with pytest.raises(Conflict, match="the UID in the precondition"):
        await client.delete(ResourceSlice, name, uid=str(uuid.uuid4()))
    with pytest.raises(Conflict, match="the ResourceVersion in the precondition"):
        await client.delete(ResourceSlice, name, resource_version="1")
    await client.delete(
        ResourceSlice,
        name,
        uid=made.metadata.uid,
        resource_version=made.metadata.resource_version,
    )
    assert await stored(client, name) == ()


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


def name_of(item: ResourceSlice) -> str:
    """By which lists are sorted."""
    return item.metadata.name


async def a_long_list_comes_in_pages(client: KubeClient) -> None:
    """Together they have each object once, and a watch continues from where the first page was."""
    driver = new_driver()
    made = [await client.create(slice_of(driver, node=f"node-{at}")) for at in range(5)]
    await client.create(slice_of(new_driver()))
    selector = f"spec.driver={driver}"
    for page in (1, 2, 5, 100):
        listed = await client.list_all(ResourceSlice, field_selector=selector, page=page)
        assert sorted(listed.objects, key=name_of) == sorted(made, key=name_of)
        assert not listed.unread
        assert int(listed.version) >= int(made[-1].metadata.resource_version or 0)


async def a_list_may_be_of_one_namespace(client: KubeClient) -> None:
    """Objects in other namespaces stay out; without a namespace the list has all."""
    name = f"listed-{uuid.uuid4()}"
    for namespace in ("default", "kube-system"):
        meta = ObjectMeta(name=name, namespace=namespace)
        await client.apply(ConfigMap(metadata=meta, data={}), manager="one")
    places = []
    for asked in ("default", "kube-public", None):
        found = (await client.list_all(ConfigMap, namespace=asked, page=1)).objects
        places.append([one.metadata.namespace for one in found if one.metadata.name == name])
    assert places == [["default"], [], ["default", "kube-system"]]


class _Described(ConfigMap):
    """The metadata of a ConfigMap."""

    metadata_only = True


async def a_list_may_be_of_metadata_alone(client: KubeClient) -> None:
    """Selectors and pages work; the rest of an object stays away."""
    name = f"described-{uuid.uuid4()}"
    for namespace in ("default", "kube-system"):
        meta = ObjectMeta(name=name, namespace=namespace, annotations={"about": namespace})
        await client.apply(ConfigMap(metadata=meta, data={"large": "x"}), manager="one")
    found = await client.list_all(_Described, field_selector=f"metadata.name={name}", page=1)
    annotations = [one.metadata.annotations for one in found.objects]
    assert annotations == [{"about": "default"}, {"about": "kube-system"}]
    assert [one.data for one in found.objects] == [{}, {}]
    assert all(one.metadata.uid for one in found.objects)


class _Claim(KubeObject):
    """A ResourceClaim with its spec."""

    group_version = ResourceClaim.group_version
    kind_name = ResourceClaim.kind_name
    plural = ResourceClaim.plural
    namespaced = True

    spec: Any


async def a_list_goes_on_after_a_large_object(client: KubeClient) -> None:
    """A list begins with its place, and an object with its names, before all that is large."""
    large, *others = (f"{letter}-{uuid.uuid4()}" for letter in "bac")
    opaque = {"driver": "large.example.com", "parameters": {"a": [1] * 5000}}
    wanted = [{"name": "npu", "exactly": {"deviceClassName": "none.example.com"}}]

    async def create(name: str, **devices: Any) -> None:
        meta = ObjectMeta(name=name, namespace="default")
        await client.create(_Claim(metadata=meta, spec={"devices": devices | {"requests": wanted}}))

    for name in others:
        await create(name)
    with pytest.raises(Unreadable, match="at most 100000 are read"):  # it is stored all the same
        await create(large, config=[{"opaque": opaque}] * 32)
    found = await client.list_all(ResourceClaim, namespace="default", page=2)
    assert {*others} <= {claim.metadata.name for claim in found.objects}
    (unread,) = found.unread
    assert unread.title == f"default/{large}"
    assert unread.uid
    for name in (large, *others):
        await client.delete(ResourceClaim, name, "default")


async def the_server_tells_its_version(client: KubeClient) -> None:
    """Each authenticated client may ask; 1.34 is the oldest with resource.k8s.io/v1."""
    assert await client.minor_version() >= 34


async def a_field_that_is_no_selector_is_refused(client: KubeClient) -> None:
    """The message names the field."""
    with pytest.raises(Invalid, match=r"field label not supported.*: spec\.generation"):
        await client.list(ResourceSlice, field_selector="spec.generation=1")


async def an_applied_field_belongs_to_its_manager(client: KubeClient) -> None:
    """A field that it leaves out goes, unless another manager has applied it too."""
    name = f"applied-{uuid.uuid4()}"

    async def apply(manager: str, uid: str | None = None, **data: str) -> dict[str, str]:
        meta = ObjectMeta(name=name, namespace="default", uid=uid)
        await client.apply(ConfigMap(metadata=meta, data=data), manager=manager)
        return (await client.get(ConfigMap, name, "default")).data or {}

    assert await apply("one", a="1", b="1") == {"a": "1", "b": "1"}
    assert await apply("other", b="2") == {"a": "1", "b": "2"}
    assert await apply("other", a="1", b="2") == {"a": "1", "b": "2"}
    assert await apply("one") == {"a": "1", "b": "2"}
    assert await apply("other", b="2") == {"b": "2"}
    with pytest.raises(Invalid, match=r"metadata\.uid: .* field is immutable"):
        await apply("one", uid=str(uuid.uuid4()), a="3")


async def a_node_says_who_applied_its_labels(client: KubeClient) -> None:
    """Each writer knows its own labels by that."""
    node = await client.create(ManagedNode(metadata=ManagedMeta(name=f"node-{uuid.uuid4()}")))
    labels = {"example.com/a": "1", "b": "2"}
    meta = ManagedMeta(name=node.metadata.name, labels=labels)
    await client.apply(ManagedNode(metadata=meta), manager="one")
    found = (await client.get(ManagedNode, node.metadata.name)).metadata
    assert found.labels_by("one") == labels.keys()
    assert found.labels_by("other") == frozenset()
    await client.delete(ManagedNode, node.metadata.name)


AS_DRIVER: tuple[Scenario, ...] = (
    a_created_object_gets_name_uid_and_version,
    a_dry_run_stores_nothing,
    quantities_come_back_canonical,
    a_missing_object_is_not_found,
    an_invalid_slice_is_refused_with_the_field,
    a_missing_right_is_forbidden,
    an_update_needs_the_newest_version,
    the_identity_of_a_slice_stays,
    a_delete_keeps_its_preconditions,
    a_list_selects_by_driver_and_node,
    a_long_list_comes_in_pages,
    the_server_tells_its_version,
    a_field_that_is_no_selector_is_refused,
    a_watch_tells_each_change_in_order,
    a_picture_follows_the_changes,
    a_bookmark_moves_a_quiet_watch_on,
)
AS_ADMINISTRATOR: tuple[Scenario, ...] = (
    a_dry_run_shows_dropped_fields,
    a_path_that_is_not_served_is_no_missing_object,
    a_list_may_be_of_one_namespace,
    a_list_may_be_of_metadata_alone,
    a_picture_may_be_of_labels_in_a_namespace,
    a_list_goes_on_after_a_large_object,
    an_applied_field_belongs_to_its_manager,
    a_node_says_who_applied_its_labels,
    devices_of_a_claim_have_a_status_each,
)
"""Scenarios that need rights which the driver does not have."""
