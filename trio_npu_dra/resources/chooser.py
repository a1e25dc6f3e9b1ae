"""Chips that somebody else than the kubelet has chosen for a pod, such as a scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Chips that were chosen for a pod.

    Attributes:
        namespace: Of the pod.
        pod: Its name.
        uid: Its UID.
        numbers: Physical ids of the chips.
    """

    namespace: str
    pod: str
    uid: str
    numbers: tuple[int, ...]

    @property
    def owner(self) -> tuple[str, str]:
        """Namespace and name of the pod."""
        return self.namespace, self.pod


class Chooser(Protocol):
    """Knows what was chosen."""

    async def choices(self, resource: str, ids: Sequence[str]) -> Sequence[Chosen]:
        """What was chosen for pods that wait for so many devices of a resource, next one first.

        The kubelet does not say for which pod it asks. Where one that was given some of the ids
        waits still, it asks for another container of that one, and nothing is chosen.

        Args:
            resource: The resource.
            ids: Those that the kubelet gives out.

        Raises:
            AllocationRefused: Nobody can tell.
        """

    def given(self, chosen: Chosen, resource: str, ids: Sequence[str]) -> None:
        """Note that its pod has got the chips; the kubelet knows them by these ids."""

    async def keep(self) -> NoReturn:
        """Do what has to be done besides, without end."""
