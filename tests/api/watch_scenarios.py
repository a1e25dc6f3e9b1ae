"""The conformance scenarios about watches."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

import pytest
import trio

from tests.api.scenario import new_driver, slice_of
from trio_npu_dra.kit.api.client import KubeClient, WatchEvent
from trio_npu_dra.kit.api.objects import Device, KubeObject, ObjectMeta, ResourceSlice
from trio_npu_dra.kit.api.parsing import EventType
from trio_npu_dra.kit.api.watch import View, list_and_watch
from trio_npu_dra.kit.base.errors import Gone
from trio_npu_dra.lab.standins.api_state import ConfigMap

K = TypeVar("K", bound=KubeObject)
Event = WatchEvent[ResourceSlice]

_BOOKMARK_LIMIT = 90.0
"""Seconds; a real API server sends bookmarks once a minute."""


async def first(events: AsyncIterator[Event], wanted: Callable[[Event], bool]) -> Event:
    """The first event that matches."""
    async for event in events:
        if wanted(event):
            return event
    raise AssertionError("the watch ended")


def is_change(event: Event) -> bool:
    """Whether it is no bookmark, because those can come at any time."""
    return event.type is not EventType.BOOKMARK


async def a_watch_tells_each_change_in_order(client: KubeClient) -> None:
    """From the list's version on it misses no change, and sends none of other objects."""
    driver = new_driver()
    selector = f"spec.driver={driver}"
    _, version = await client.list(ResourceSlice, field_selector=selector)
    made = await client.create(slice_of(driver, Device(name="npu-0")))
    await client.create(slice_of(new_driver()))
    with trio.fail_after(10):
        async with client.watch(
            ResourceSlice, field_selector=selector, resource_version=version
        ) as events:
            added = await first(events, is_change)
            spec = made.spec.model_copy(update={"devices": ()})
            changed = await client.update(made.model_copy(update={"spec": spec}))
            modified = await first(events, is_change)
            await client.delete(ResourceSlice, made.metadata.name)
            deleted = await first(events, is_change)
    assert (added.type, added.object) == (EventType.ADDED, made)
    assert (modified.type, modified.object) == (EventType.MODIFIED, changed)
    assert deleted.type is EventType.DELETED
    assert int(deleted.resource_version) > int(modified.resource_version)


async def a_bookmark_moves_a_quiet_watch_on(client: KubeClient) -> None:
    """A watch without events still learns the newest version."""
    selector = f"spec.driver={new_driver()}"
    _, version = await client.list(ResourceSlice, field_selector=selector)
    with trio.fail_after(_BOOKMARK_LIMIT):
        async with client.watch(
            ResourceSlice, field_selector=selector, resource_version=version
        ) as events:
            other = await client.create(slice_of(new_driver()))
            goal = int(other.metadata.resource_version or 0)
            bookmark = await first(events, lambda event: int(event.resource_version) >= goal)
    assert (bookmark.type, bookmark.object) == (EventType.BOOKMARK, None)


async def a_picture_follows_the_changes(client: KubeClient) -> None:
    """List and watch together show the selected objects, as they come and go."""
    driver = new_driver()
    made = await client.create(slice_of(driver, Device(name="npu-0")))
    views = list_and_watch(client, ResourceSlice, field_selector=f"spec.driver={driver}")
    with trio.fail_after(10):
        async with aclosing(views):
            await shows(views, made)
            await client.create(slice_of(new_driver()))
            other = await client.create(slice_of(driver, node="node-2"))
            await shows(views, made, other)
            await client.delete(ResourceSlice, made.metadata.name)
            await shows(views, other)


async def a_picture_may_be_of_labels_in_a_namespace(client: KubeClient) -> None:
    """In pages, too; objects with other labels and in other namespaces stay out."""
    job = f"job-{uuid.uuid4()}"

    async def create(label: str, namespace: str = "default") -> ConfigMap:
        meta = ObjectMeta(generate_name="member-", namespace=namespace, labels={"job": label})
        return await client.create(ConfigMap(metadata=meta, data={}))

    made = [await create(job), await create(job)]
    await create("other")
    views = list_and_watch(
        client, ConfigMap, namespace="default", label_selector=f"job={job}", page=1
    )
    with trio.fail_after(10):
        async with aclosing(views):
            await shows(views, *made)
            await create("other")
            await create(job, "kube-system")
            made.append(await create(job))
            await shows(views, *made)


async def shows(views: AsyncIterator[View[K]], *expected: K) -> None:
    """Wait for a fresh view of exactly these objects."""
    wanted = {one.metadata.uid: one for one in expected}
    async for view in views:
        found = {one.metadata.uid: one for one in view.objects.values()}
        if view.stale_since is None and found == wanted:
            return


async def assert_gone(client: KubeClient, kind: type[KubeObject]) -> None:
    """A watch from the oldest version of all is refused, where history starts later.

    Each server loses history in its own way, so this is no scenario of its own.
    """
    with trio.fail_after(10), pytest.raises(Gone, match="too old resource version: 1"):
        async with client.watch(kind, resource_version="1") as events:
            await anext(events)
