"""Chips that a scheduler has chosen for a pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenChips:
    """Chips that were chosen for a pod.

    Attributes:
        namespace: Of the pod.
        pod: Its name.
        uid: Its UID.
        numbers: Physical ids of the chips, as many as it has while it runs.
        time: When they were chosen; only the order counts.
        is_served: Whether it is written on the pod that it has them.
    """

    namespace: str
    pod: str
    uid: str
    numbers: tuple[int, ...]
    time: int = 0
    is_served: bool = False

    @property
    def owner(self) -> tuple[str, str]:
        """Namespace and name of the pod."""
        return self.namespace, self.pod


class Chooser(Protocol):
    """Knows what was chosen."""

    async def choices(self, resource: str, count: int) -> Sequence[ChosenChips]:
        """What was chosen for pods that have not started, next one first.

        Of these pods a container wants so many devices of the resource. The kubelet does not say
        for which pod it asks.

        Raises:
            AllocationRefused: Nobody can tell.
        """

    def given(self, chosen: ChosenChips, resource: str) -> None:
        """Note that its pod has got the chips."""

    async def keep(self) -> NoReturn:
        """Do what has to be done besides, until cancelled."""
