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
from typing import Final, NoReturn, TypeAlias

import trio

from trio_npu_dra import pulse
from trio_npu_dra.errors import AllocationRefused, KubeError
from trio_npu_dra.kube.applied import Container, Pod, PodMeta
from trio_npu_dra.kube.client import KubeClient
from trio_npu_dra.kube.pages import Unread
from trio_npu_dra.kube.retry import Retry
from trio_npu_dra.mindcluster.node_writer import MANAGER, RETRY_LIMIT
from trio_npu_dra.npu.model import Board, Chip, ChipFamily
from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.chooser import Chosen
from trio_npu_dra.resources.names import USUAL, device_id

log = logging.getLogger(__name__)

TIME: Final = "predicate-time"
"""When Volcano chose, in nanoseconds since 1970."""

LATEST: Final = 2**64 - 1
"""The time of a pod that has got its chips."""

REAL: Final = "huawei.com/AscendReal"
"""The chips that a pod has."""

KUBELETS: Final = "huawei.com/kltDev"
"""The ids under which the kubelet knows them."""

_PAGE: Final = 8  # pods in one answer, which the API server makes in a second though each has 8 MB
_NAMED: Final = 5  # pods in one line of the log
_COUNT_LIMIT: Final = 1024  # chips of one pod that are read
_STUCK_SECONDS: Final = 60.0

_Timed: TypeAlias = tuple[int, Chosen]
"""When Volcano chose, and what."""


class VolcanosChoices:
    """What Volcano chose for pods of this node; fulfils `resources.chooser.Chooser`.

    Args:
        client: The API server; needs `list` and `patch` on pods.
        board: The chips.
        node_name: The Node.
    """

    def __init__(self, client: KubeClient, board: Observable[Board], node_name: str) -> None:
        self._client = client
        self._board = board
        self._selector = f"spec.nodeName={node_name},status.phase=Pending"
        self._given: Mapping[str, frozenset[str]] = {}  # ids by the pod's UID
        self._unread: frozenset[str] = frozenset()  # UIDs of pods that could not be read
        self._to_write: dict[str, Pod] = {}
        self._wanted = trio.Event()

    async def choices(self, resource: str, ids: Sequence[str]) -> Sequence[Chosen]:
        """What Volcano chose for pods that wait for so many chips, the earliest first.

        None for ids that a pod has which waits: one of its init containers has had them, and the
        kubelet asks for the next container. None for a pod that cannot be read either: every tenant
        can write one, and other pods need their chips.

        Raises:
            AllocationRefused: The API server does not list the pods.
        """
        if resource not in USUAL.values():
            return ()
        staying: set[str | None] = set()
        found: list[_Timed] = []
        unread: list[Unread] = []
        chips = self._board.value.chips
        try:
            async with aclosing(
                self._client.pages(Pod, field_selector=self._selector, page=_PAGE)
            ) as pages:
                async for page in pages:  # all pods together may be larger than our memory
                    pods = [pod for pod in page.objects if pod.metadata.deletion_timestamp is None]
                    staying |= {pod.metadata.uid for pod in pods}
                    waiting = [pod for pod in pods if pod.metadata.uid not in self._given]
                    found += timed_choices(waiting, resource, len(ids), chips)
                    unread += page.unread
        except KubeError as error:
            raise AllocationRefused(f"which NPUs Volcano chose is not known: {error}") from error
        self._name(unread)
        staying |= self._unread
        self._given = {uid: some for uid, some in self._given.items() if uid in staying}
        if any(not some.isdisjoint(ids) for some in self._given.values()):
            return ()
        return in_order(found)

    def _name(self, unread: Sequence[Unread]) -> None:
        """Log once of each pod that it cannot be read."""
        known, self._unread = self._unread, frozenset(pod.uid for pod in unread)
        if new := [pod for pod in unread if pod.uid not in known]:
            log.warning(
                "pods cannot be read: they count as pods for which Volcano chose no NPUs",
                extra={
                    "pods": [pod.title for pod in new[:_NAMED]],
                    "count": len(new),
                    "first": new[0].why,
                },
            )

    def given(self, chosen: Chosen, resource: str, ids: Sequence[str]) -> None:
        """Have it written on the pod which chips it has."""
        real = [device_id(resource, number) for number in chosen.numbers]
        annotations = {
            TIME: str(LATEST),
            REAL: ",".join(sorted(real)),
            KUBELETS: ",".join(sorted(ids)),
        }
        meta = PodMeta(
            name=chosen.pod, namespace=chosen.namespace, uid=chosen.uid, annotations=annotations
        )
        self._given = {**self._given, chosen.uid: frozenset(ids)}
        self._to_write[chosen.uid] = Pod(metadata=meta)
        self._wanted.set()

    async def keep(self) -> NoReturn:
        """Write on pods what they have, without end."""
        retry = Retry("writing on pods which NPUs they have", log, limit=RETRY_LIMIT)
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            for uid, pod in tuple(self._to_write.items()):
                try:
                    with pulse.step("writing on a pod", limit=_STUCK_SECONDS):
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


def timed_choices(
    pods: Iterable[Pod], resource: str, count: int, chips: Iterable[Chip]
) -> Iterator[_Timed]:
    """What was chosen for those of some pods that wait for so many chips; pure.

    Args:
        pods: Pods of this node that do not run yet.
        resource: The resource.
        count: How many chips the kubelet has been asked for.
        chips: All of the node.
    """
    number_of = _numbers(resource, chips)
    for pod in pods:
        numbers = _numbers_in((pod.metadata.annotations or {}).get(resource, ""), number_of)
        time, meta = _time(pod), pod.metadata
        if time < LATEST and len(numbers) == count and _asks_for(pod, resource, count):
            namespace, uid = meta.namespace or "", meta.uid or ""
            yield time, Chosen(namespace=namespace, pod=meta.name, uid=uid, numbers=numbers)


def in_order(found: Iterable[_Timed]) -> tuple[Chosen, ...]:
    """The choices, the earliest first."""
    return tuple(one for _, one in sorted(found, key=lambda each: (each[0], each[1].uid)))


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
    return chip.logic_id if chip.family is ChipFamily.ASCEND_950 else chip.physical_id


def _numbers_in(text: str, number_of: Callable[[str], int | None]) -> tuple[int, ...]:
    """The chips that an annotation names; none if one of them is not here, or is there twice."""
    numbers = [number_of(name) for name in text.split(",", _COUNT_LIMIT)]
    known = dict.fromkeys(number for number in numbers if number is not None)
    return tuple(known) if len(known) == len(numbers) else ()


def _time(pod: Pod) -> int:
    """When Volcano chose; `LATEST` if that is not told, or the pod has got its chips, or ends."""
    text = (pod.metadata.annotations or {}).get(TIME, "")
    is_told = re.fullmatch(r"[0-9]{1,20}", text) is not None
    return int(text) if is_told and pod.metadata.deletion_timestamp is None else LATEST


def _asks_for(pod: Pod, resource: str, count: int) -> bool:
    """Whether a container wants just so many, and no init container another number.

    The kubelet gives the ids of an init container to the next ones. If these stood for other chips
    from then on, the first ones would be free before the init container has ended.
    """
    if pod.spec is None:
        return False
    wanted = [_limit(container, resource) for container in pod.spec.containers]
    before = {_limit(container, resource) for container in pod.spec.init_containers}
    return str(count) in wanted and before <= {"0", str(count)}


def _limit(container: Container, resource: str) -> str:
    limits = container.resources.limits if container.resources else None
    return str((limits or {}).get(resource, 0))
