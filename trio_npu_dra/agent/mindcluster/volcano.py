"""The chips that Volcano chose for a pod, as the pod's annotations say.

Once the pod has its chips, we write them on it, and the largest number as the time, so that Volcano
does not choose for it again. Volcano and MindCluster read both.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NoReturn

import trio

from trio_npu_dra.agent.device_plugin.chooser import ChosenChips
from trio_npu_dra.agent.device_plugin.names import USUAL, device_id
from trio_npu_dra.agent.mindcluster.pod_configuration import (
    CONFIGURATION,
    is_configured,
    pod_configuration,
)
from trio_npu_dra.agent.mindcluster.writers import MANAGER
from trio_npu_dra.agent.report.labelled_node import RETRY_LIMIT
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.nodes import FullNode
from trio_npu_dra.kit.api.objects import ObjectMeta
from trio_npu_dra.kit.api.pods import Container, Pod, PodMetadata
from trio_npu_dra.kit.api.retry import Retry
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import AllocationRefused, KubeError
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

TIME: Final = "predicate-time"
"""When Volcano chose, in nanoseconds since 1970."""

LATEST: Final = 2**64 - 1
"""The time of a pod that has got its chips."""

REAL: Final = "huawei.com/AscendReal"
"""The ids of the chips that a pod has."""

KUBELETS: Final = "huawei.com/kltDev"
"""The ids under which the kubelet knows them, which are the same."""

_PAGE: Final = 8  # pods in one answer: the API server makes it in memory, and a pod can have 2 MB
_TIME: Final = re.compile(r"[0-9]{1,20}")
_COUNT: Final = re.compile(r"[0-9]{1,4}")
_COUNT_LIMIT: Final = 1024  # chips of one pod that are read
_STUCK_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """How many chips of a resource a pod wants."""

    counts: frozenset[int]  # how many one container may ask for
    total: int  # of all but init containers: as many as Volcano chooses


class VolcanosChoices:
    """Volcano's choices for pods of this node; fulfils `device_plugin.chooser.Chooser`.

    It needs `list` and `patch` on pods, and `get` on the Node.
    """

    def __init__(self, client: KubeClient, board: Observable[Board], node_name: str) -> None:
        self._client = client
        self._board = board
        self._node_name = node_name
        self._selector = f"spec.nodeName={node_name},status.phase=Pending"
        self._demands: dict[str, Mapping[str, PodDemand]] = {}  # by the pod's UID, and resource
        self._to_write: dict[str, tuple[ChosenChips, str]] = {}  # with the resource
        self._host_ip = ""  # until it is needed, and the kubelet has set it
        self._wanted = trio.Event()

    async def choices(self, resource: str, count: int) -> Sequence[ChosenChips]:
        """The choices for pods with a container that wants *count* chips, the earliest first.

        A pod that cannot be read counts as one without a choice: every tenant can write such a pod,
        and must not keep other pods from their chips.

        Raises:
            AllocationRefused: The API server does not list the pods.
        """
        if resource not in USUAL.values():
            return ()
        found = []
        try:
            for one in await self._annotated(resource):
                demand = (await self._demand_of(one)).get(resource)
                if demand and count in demand.counts and demand.total == len(one.numbers):
                    found.append(one)
        except KubeError as error:
            raise AllocationRefused(f"which NPUs Volcano chose is not known: {error}") from error
        return sorted(found, key=lambda one: (one.time, one.uid))

    async def _annotated(self, resource: str) -> list[ChosenChips]:
        """The choices on pods, without a look at what their containers want."""
        chips = self._board.value.chips
        uids: set[str | None] = set()
        found: list[ChosenChips] = []
        pages = self._client.pages(PodMetadata, field_selector=self._selector, page=_PAGE)
        async with aclosing(pages):
            async for page in pages:  # all pods together may be larger than our memory
                uids |= {pod.metadata.uid for pod in page.objects}
                found += choices_on(page.objects, resource, chips)
        self._demands = {uid: one for uid, one in self._demands.items() if uid in uids}
        return found

    async def _demand_of(self, chosen: ChosenChips) -> Mapping[str, PodDemand]:
        """The demand of a pod by resource, which cannot change: it is read once."""
        if chosen.uid not in self._demands:
            found = await self._client.list_all(
                Pod,
                namespace=chosen.namespace,
                field_selector=f"metadata.name={chosen.pod}",
                page=1,
            )
            for one in found.unread:
                log.warning(
                    "a pod cannot be read: it counts as one for which Volcano chose no NPUs",
                    extra={"pod": one.title, "why": one.why},
                )
            self._demands[chosen.uid] = {
                resource: demand_of(pod, resource)
                for pod in found.objects
                if pod.metadata.uid == chosen.uid
                for resource in USUAL.values()
            }
        return self._demands[chosen.uid]

    def given(self, chosen: ChosenChips, resource: str) -> None:
        """Have the pod's chips written on it."""
        self._to_write[chosen.uid] = chosen, resource
        self._wanted.set()

    async def keep(self) -> NoReturn:
        """Write their chips on pods, until cancelled."""
        retry = Retry("writing on pods which NPUs they have", log, limit=RETRY_LIMIT)
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            for uid, given in tuple(self._to_write.items()):
                try:
                    with watchdog.step("writing on a pod", limit=_STUCK_SECONDS):
                        await self._write(*given)
                except KubeError as error:
                    if error.retryable:
                        self._wanted.set()
                        await trio.sleep(retry.failed(error))
                        continue
                    # As a rule the pod has ended; a new one of its name has another UID.
                    log.warning("which NPUs a pod has is not written", extra={"error": str(error)})
                else:
                    retry.recovered()
                del self._to_write[uid]

    async def _write(self, chosen: ChosenChips, resource: str) -> None:
        ids = ",".join(sorted(device_id(resource, number) for number in chosen.numbers))
        annotations = {TIME: str(LATEST), REAL: ids, KUBELETS: ids}
        chips = [one for one in self._board.value.chips if one.physical_id in chosen.numbers]
        if is_configured(chips):
            if not self._host_ip:
                self._host_ip = (await self._client.get(FullNode, self._node_name)).internal_ip
            annotations[CONFIGURATION] = pod_configuration(
                chosen.pod, chosen.uid, self._host_ip, chips
            )
        meta = ObjectMeta(
            name=chosen.pod, namespace=chosen.namespace, uid=chosen.uid, annotations=annotations
        )
        await self._client.apply(Pod(metadata=meta), manager=MANAGER)


def choices_on(
    pods: Iterable[PodMetadata], resource: str, chips: Iterable[Chip]
) -> Iterator[ChosenChips]:
    """The choices on pods of this node that do not run yet; pure.

    Volcano counts the chips of a 950 as `baseDeviceInfos` does: by logic id.
    """
    numbers_by_id = {
        device_id(
            resource,
            chip.logic_id if TRAITS[chip.family].is_named_by_logic_id else chip.physical_id,
        ): chip.physical_id
        for chip in chips
        if USUAL[chip.family] == resource
    }
    for pod in pods:
        meta = pod.metadata
        annotations = meta.annotations
        ids = annotations.get(resource, "").split(",", _COUNT_LIMIT)
        numbers = {numbers_by_id[id_]: None for id_ in ids if id_ in numbers_by_id}
        is_whole = len(numbers) == len(ids)  # each chip is here, and named once
        time = annotations.get(TIME, "")
        if is_whole and _TIME.fullmatch(time) and meta.deletion_timestamp is None:
            yield ChosenChips(
                namespace=meta.namespace or "",
                pod=meta.name,
                uid=meta.uid or "",
                numbers=tuple(numbers),
                time=int(time),
                is_served=int(time) >= LATEST,
            )


def demand_of(pod: Pod, resource: str) -> PodDemand:
    """How many chips of a resource a pod wants; pure.

    No chip where an init container wants more than the others together. The kubelet does not list
    an init container's chips, so the pod would never have all that were chosen for it.
    """
    first = [_limit(container, resource) for container in pod.spec.init_containers]
    later = [_limit(container, resource) for container in pod.spec.containers]
    total = sum(later)
    is_more = max(first, default=0) > total
    return PodDemand(counts=frozenset() if is_more else frozenset([*first, *later]), total=total)


def _limit(container: Container, resource: str) -> int:
    text = container.resources.limits.get(resource, "")
    return int(text) if _COUNT.fullmatch(text) else 0
