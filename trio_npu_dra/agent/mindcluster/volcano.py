"""The chips that Volcano chose for a pod, as the pod's annotations say.

Volcano writes at the binding which chips it chose, and when. Whoever gives the pod its chips writes
the latest of all times over that, so that the pod is not chosen for once more, and which chips the
pod really has. Volcano and MindCluster read that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NoReturn

import trio

from trio_npu_dra.agent.device_plugin.chooser import ChosenChips
from trio_npu_dra.agent.device_plugin.names import USUAL, device_id
from trio_npu_dra.agent.mindcluster.node_writer import MANAGER, RETRY_LIMIT
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.api.applied import Container, Pod, PodMeta, PodMetadata, PodSpec
from trio_npu_dra.kit.api.client import KubeClient
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
"""The chips that a pod has."""

KUBELETS: Final = "huawei.com/kltDev"
"""The ids under which the kubelet knows them: the same, because it takes the chips by their ids."""

_PAGE: Final = 8  # pods in one answer, which the API server makes at once though each has 2 MB
_TIME: Final = re.compile(r"[0-9]{1,20}")
_COUNT: Final = re.compile(r"[0-9]{1,4}")
_COUNT_LIMIT: Final = 1024  # chips of one pod that are read
_STUCK_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """What the containers of a pod want of a resource."""

    counts: frozenset[int]  # how many one container wants
    total: int  # how many those want together that are no init containers: what Volcano chooses


class VolcanosChoices:
    """What Volcano chose for pods of this node; fulfils `device_plugin.chooser.Chooser`.

    Args:
        client: The API server; needs `list` and `patch` on pods.
        board: The chips.
        node_name: The Node.
    """

    def __init__(self, client: KubeClient, board: Observable[Board], node_name: str) -> None:
        self._client = client
        self._board = board
        self._selector = f"spec.nodeName={node_name},status.phase=Pending"
        self._wanted_by: dict[str, Mapping[str, PodDemand]] = {}  # by the pod's UID, and resource
        self._to_write: dict[str, Pod] = {}
        self._wanted = trio.Event()

    async def choices(self, resource: str, count: int) -> Sequence[ChosenChips]:
        """What Volcano chose for pods of which a container wants so many chips, the earliest first.

        Nothing for a pod that cannot be read: every tenant can write one, and others need their
        chips.

        Raises:
            AllocationRefused: The API server does not list the pods.
        """
        if resource not in USUAL.values():
            return ()
        try:
            annotated = [
                (one, (await self._wanted_of(one)).get(resource))
                for one in await self._annotated(resource)
            ]
        except KubeError as error:
            raise AllocationRefused(f"which NPUs Volcano chose is not known: {error}") from error
        found = [
            one
            for one, wanted in annotated
            if wanted and count in wanted.counts and wanted.total == len(one.numbers)
        ]
        return sorted(found, key=lambda one: (one.time, one.uid))

    async def _annotated(self, resource: str) -> list[ChosenChips]:
        """The choices that are on pods, whatever these want."""
        chips = self._board.value.chips
        uids: set[str | None] = set()
        found: list[ChosenChips] = []
        pages = self._client.pages(PodMetadata, field_selector=self._selector, page=_PAGE)
        async with aclosing(pages):
            async for page in pages:  # all pods together may be larger than our memory
                uids |= {pod.metadata.uid for pod in page.objects}
                found += choices_on(page.objects, resource, chips)
        self._wanted_by = {uid: one for uid, one in self._wanted_by.items() if uid in uids}
        return found

    async def _wanted_of(self, chosen: ChosenChips) -> Mapping[str, PodDemand]:
        """What containers of a pod want, which cannot change: it is read once."""
        if chosen.uid not in self._wanted_by:
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
            self._wanted_by[chosen.uid] = {
                resource: wanted_of(pod, resource)
                for pod in found.objects
                if pod.metadata.uid == chosen.uid
                for resource in USUAL.values()
            }
        return self._wanted_by[chosen.uid]

    def given(self, chosen: ChosenChips, resource: str) -> None:
        """Have it written on the pod which chips it has."""
        ids = ",".join(sorted(device_id(resource, number) for number in chosen.numbers))
        meta = PodMeta(
            name=chosen.pod,
            namespace=chosen.namespace,
            uid=chosen.uid,
            annotations={TIME: str(LATEST), REAL: ids, KUBELETS: ids},
        )
        self._to_write[chosen.uid] = Pod(metadata=meta)
        self._wanted.set()

    async def keep(self) -> NoReturn:
        """Write on pods what they have, until cancelled."""
        retry = Retry("writing on pods which NPUs they have", log, limit=RETRY_LIMIT)
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            for uid, pod in tuple(self._to_write.items()):
                try:
                    with watchdog.step("writing on a pod", limit=_STUCK_SECONDS):
                        await self._client.apply(pod, manager=MANAGER)
                except KubeError as error:
                    if error.retryable:
                        self._wanted.set()
                        await trio.sleep(retry.failed(error))
                        continue
                    # It has ended, as a rule; another one of its name has another UID.
                    log.warning("which NPUs a pod has is not written", extra={"error": str(error)})
                else:
                    retry.recovered()
                del self._to_write[uid]


def choices_on(
    pods: Iterable[PodMetadata], resource: str, chips: Iterable[Chip]
) -> Iterator[ChosenChips]:
    """The choices that are on pods; pure.

    Args:
        pods: Pods of this node that do not run yet.
        resource: The resource.
        chips: All of the node.
    """
    number_of = _numbers(resource, chips)
    for pod in pods:
        meta = pod.metadata
        annotations = meta.annotations or {}
        numbers = _numbers_in(annotations.get(resource, ""), number_of)
        time = annotations.get(TIME, "")
        if numbers and _TIME.fullmatch(time) and meta.deletion_timestamp is None:
            yield ChosenChips(
                namespace=meta.namespace or "",
                pod=meta.name,
                uid=meta.uid or "",
                numbers=numbers,
                time=int(time),
                is_served=int(time) >= LATEST,
            )


def wanted_of(pod: Pod, resource: str) -> PodDemand:
    """What a pod wants of a resource; pure.

    Nothing where an init container wants more than the others together. The kubelet does not list
    what that one has, so the pod would never have all that was chosen for it.
    """
    spec = pod.spec or PodSpec()
    first = [_limit(container, resource) for container in spec.init_containers]
    later = [_limit(container, resource) for container in spec.containers]
    total = sum(later)
    is_more = max(first, default=0) > total
    return PodDemand(counts=frozenset() if is_more else frozenset([*first, *later]), total=total)


def _limit(container: Container, resource: str) -> int:
    limits = container.resources.limits if container.resources else None
    text = str((limits or {}).get(resource, ""))
    return int(text) if _COUNT.fullmatch(text) else 0


def _numbers(resource: str, chips: Iterable[Chip]) -> Callable[[str], int | None]:
    """What finds the physical id of a chip by Volcano's name for it.

    Volcano counts the chips of a 950 as `baseDeviceInfos` does: by logic id.
    """
    names: Mapping[str, int] = {
        device_id(resource, _volcanos_number(chip)): chip.physical_id
        for chip in chips
        if USUAL[chip.family] == resource
    }
    return names.get


def _volcanos_number(chip: Chip) -> int:
    return chip.logic_id if TRAITS[chip.family].is_named_by_logic_id else chip.physical_id


def _numbers_in(text: str, number_of: Callable[[str], int | None]) -> tuple[int, ...]:
    """The chips that an annotation names; none if one of them is not here, or is there twice."""
    numbers = [number_of(name) for name in text.split(",", _COUNT_LIMIT)]
    known = dict.fromkeys(number for number in numbers if number is not None)
    return tuple(known) if len(known) == len(numbers) else ()
