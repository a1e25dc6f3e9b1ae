"""The slices of one node at the API server: read, compared with a pool, and written."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable
from typing import TypeAlias

from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import Node, OwnerReference, ResourceSlice
from trio_npu_dra.kit.api.watch import View, list_and_watch
from trio_npu_dra.kit.base.errors import NotFound
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool.diff import Create, Delete, Update, Write, plan
from trio_npu_dra.kit.pool.pool import Pool, PoolContent
from trio_npu_dra.kit.pool.stored_forms import StoredForms

log = logging.getLogger(__name__)

Slices: TypeAlias = tuple[ResourceSlice, ...]
Listed: TypeAlias = tuple[Slices, str]
"""Slices, and the resourceVersion from which a watch continues."""


class NodeSlices:
    """The slices of one driver on one node, the Node that owns them, and how they are stored.

    Args:
        client: The API server; needs `get` on nodes, and list, watch, create, update and delete
            on resourceslices.
        node_name: The node, which is also the pool's name and the slices' owner.
        driver_name: The driver.
        node_uid: Set to the UID of the Node whenever it is read.
    """

    def __init__(
        self, client: KubeClient, node_name: str, driver_name: str, *, node_uid: Observable[str]
    ) -> None:
        self._client = client
        self._node_name = node_name
        self._driver_name = driver_name
        self._node_uid = node_uid
        self._selector = f"spec.driver={driver_name},spec.nodeName={node_name}"
        self._owner: OwnerReference | None = None
        self._stored = StoredForms()

    @property
    def dropped(self) -> frozenset[str]:
        """Fields that the API server was sent and did not store, by their names on the wire."""
        return self._stored.dropped

    def expect_as_sent(self) -> bool:
        """Expect again that everything is stored as it is sent, as a newer API server may do.

        Returns:
            Whether anything was expected in another form until now.
        """
        return self._stored.forget()

    async def begin(self) -> Listed:
        """Read the Node and the slices.

        Raises:
            KubeError: Refused or unreachable.
        """
        self._owner = await self._read_owner()
        return await self._list()

    def views(self, listed: Listed) -> AsyncGenerator[View[ResourceSlice], None]:
        """Follow them from what was *listed* just now; see `list_and_watch`."""
        return list_and_watch(
            self._client, ResourceSlice, field_selector=self._selector, listed=listed
        )

    async def read_and_plan(
        self, content: PoolContent, listed: Slices | None
    ) -> tuple[Slices, tuple[Write, ...]]:
        """List the slices and plan the writes; a new slice gets an owner read just now.

        Args:
            content: What is wanted.
            listed: The slices, if they and the Node were read just now.

        Raises:
            KubeError: Refused or unreachable.
        """
        slices = (await self._list())[0] if listed is None else listed
        writes = self.plan(slices, content)
        if listed is None and any(isinstance(write, Create) for write in writes):
            self._owner = await self._read_owner()
            writes = self.plan(slices, content)
        return slices, writes

    def plan(self, slices: Iterable[ResourceSlice], content: PoolContent) -> tuple[Write, ...]:
        """The writes that lead from *slices* to a pool, once the Node was read."""
        assert self._owner is not None
        desired = Pool(
            name=self._node_name,
            driver=self._driver_name,
            node_name=self._node_name,
            owner=self._owner,
            devices=content.devices,
            shared_counters=content.shared_counters,
        )
        return plan(slices, desired, self._stored.as_stored)

    async def send(self, write: Write) -> tuple[str, str | None]:
        """Do one write.

        Returns:
            The slice's name, and its resourceVersion now; None if it is gone.

        Raises:
            KubeError: Refused or unreachable.
        """
        meta = write.slice.metadata
        match write:
            case Delete():
                try:
                    await self._client.delete(
                        ResourceSlice,
                        meta.name,
                        uid=meta.uid,
                        resource_version=meta.resource_version,
                    )
                except NotFound:
                    log.debug("slice was gone already", extra={"slice": meta.name})
                return meta.name, None
            case Update():
                stored = await self._client.update(write.slice)
            case Create():
                stored = await self._client.create(write.slice)
        self._stored.learn(write.slice.spec, stored.spec)
        return stored.metadata.name, stored.metadata.resource_version

    async def _list(self) -> Listed:
        return await self._client.list(ResourceSlice, field_selector=self._selector)

    async def _read_owner(self) -> OwnerReference:
        node = await self._client.get(Node, self._node_name)
        self._node_uid.set(node.metadata.uid or "")
        return OwnerReference(
            api_version=Node.group_version,
            kind=Node.kind_name,
            name=self._node_name,
            uid=self._node_uid.value,
            controller=True,
        )
