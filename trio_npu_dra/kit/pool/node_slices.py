"""The slices of one node at the API server: read, compared with a pool, and written."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Final, TypeAlias

from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import Node, OwnerReference, ResourceSlice
from trio_npu_dra.kit.api.watch import View, list_and_watch
from trio_npu_dra.kit.base.errors import NotFound
from trio_npu_dra.kit.pool.diff import LAST, Write, plan
from trio_npu_dra.kit.pool.pool import Pool, PoolContent
from trio_npu_dra.kit.pool.stored_forms import StoredForms

log = logging.getLogger(__name__)

Slices: TypeAlias = tuple[ResourceSlice, ...]
Listed: TypeAlias = tuple[Slices, str]
"""Slices, and the resourceVersion from which a watch continues."""

_DIGITS: Final = 20
"""No resourceVersion has so many."""


class NodeSlices:
    """The slices of one driver on one node, the Node that owns them, and their stored forms.

    The arguments are those of `publisher.publish`.

    Attributes:
        owner: The Node as the slices name it; None until `begin` has read all.
        forms: What the API server made of the slices that were sent.
    """

    def __init__(self, client: KubeClient, node_name: str, driver_name: str) -> None:
        self._client = client
        self._node_name = node_name
        self._driver_name = driver_name
        self._selector = f"spec.driver={driver_name},spec.nodeName={node_name}"
        self.owner: OwnerReference | None = None
        self.forms = StoredForms()
        # No slice of ours, of any time, had a higher generation: each generation cost a write, and
        # each write, also a delete, makes the API server's resourceVersion higher. Since Kubernetes
        # 1.35 clients may compare it as a number (k8s.io/apimachinery/pkg/util/resourceversion).
        self._floor = 1
        # What had one, also if that is higher: of another driver, or before a restore of etcd.
        self._newest = 0

    async def begin(self) -> Listed:
        """Read the Node and the slices.

        Like all methods here that ask the API server, it raises KubeError if that is unreachable or
        refuses.
        """
        owner = await self._read_owner()
        listed = await self._list()
        self.owner = owner
        return listed

    def views(self, listed: Listed) -> AsyncGenerator[View[ResourceSlice], None]:
        """Follow the slices from what was *listed* just now; see `list_and_watch`."""
        return list_and_watch(
            self._client, ResourceSlice, field_selector=self._selector, listed=listed
        )

    async def read_and_plan(
        self, content: PoolContent, listed: Slices | None, shown: Slices | None
    ) -> tuple[Slices, tuple[Write, ...]]:
        """Plan the writes, and before that list the slices if it is needed.

        Args:
            content: The wanted pool.
            listed: The slices, if they and the Node were read just now.
            shown: The slices as a watch shows them; they will do if none is to be made.

        Returns:
            The slices on which the writes are planned, and the writes.
        """
        if shown is not None:
            writes = self.plan(shown, content)
            if all(write.verb != "create" for write in writes):
                return shown, writes
        slices = (await self._list())[0] if listed is None else listed
        writes = self.plan(slices, content)
        if listed is None and any(write.verb == "create" for write in writes):
            # The Node may have been replaced: slices of a Node that is gone are garbage.
            self.owner = await self._read_owner()
            writes = self.plan(slices, content)
        return slices, writes

    def plan(self, slices: Slices, content: PoolContent) -> tuple[Write, ...]:
        """The writes that lead from *slices* to the pool, once the Node was read."""
        assert self.owner is not None
        pools = (item.spec.pool for item in slices)
        self._note(*(pool.generation for pool in pools if pool.name == self._node_name))
        desired = Pool(
            driver=self._driver_name,
            node_name=self._node_name,
            owner=self.owner,
            devices=content.devices,
            shared_counters=content.shared_counters,
        )
        return plan(slices, desired, self.forms.as_stored, newest=self._newest, floor=self._floor)

    async def send(self, write: Write) -> tuple[str, str | None]:
        """Do one write.

        Returns:
            The slice's name, and its resourceVersion now; None if it is gone.
        """
        meta = write.slice.metadata
        if write.verb == "delete":
            try:
                await self._client.delete(
                    ResourceSlice, meta.name, uid=meta.uid, resource_version=meta.resource_version
                )
            except NotFound:
                log.debug("slice was gone already", extra={"slice": meta.name})
            return meta.name, None
        send = self._client.update if write.verb == "update" else self._client.create
        stored = await send(write.slice)
        self.forms.learn(write.slice.spec, stored.spec)
        self._note(stored.spec.pool.generation)
        return stored.metadata.name, stored.metadata.resource_version

    async def _list(self) -> Listed:
        slices, version = await self._client.list(ResourceSlice, field_selector=self._selector)
        if version.isdecimal() and len(version) < _DIGITS:
            self._floor = max(self._floor, int(version) + 1)
        return slices, version

    def _note(self, *generations: int) -> None:
        self._newest = max([self._newest, *(each for each in generations if each + 1 < LAST)])

    async def _read_owner(self) -> OwnerReference:
        node = await self._client.get(Node, self._node_name)
        return OwnerReference(
            api_version=Node.group_version,
            kind=Node.kind_name,
            name=self._node_name,
            uid=node.metadata.uid or "",
            controller=True,
        )
