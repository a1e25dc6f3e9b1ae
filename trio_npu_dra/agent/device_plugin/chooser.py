"""Chips that a scheduler has chosen for a pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenChips:
    """Chips that were chosen for a pod."""

    namespace: str
    pod: str
    uid: str
    numbers: tuple[int, ...]  # physical ids of the chips, as many as the pod has while it runs
    time: int = 0  # when they were chosen; only the order counts
    is_served: bool = False  # whether the pod's annotations say that it has them

    @property
    def owner(self) -> tuple[str, str]:
        """Namespace and name of the pod."""
        return self.namespace, self.pod


class Chooser(Protocol):
    """Knows which chips a scheduler chose."""

    async def choices(self, resource: str, count: int) -> Sequence[ChosenChips]:
        """The choices for pods that have not started, in the order in which they are served.

        One container of each such pod wants *count* devices of the resource. The kubelet does not
        say for which pod it asks.

        Raises:
            AllocationRefused: The choices are not known.
        """

    def given(self, chosen: ChosenChips, resource: str) -> None:
        """Note that the pod has got its chips."""

    async def keep(self) -> NoReturn:
        """Write what was noted to the API server, until cancelled."""
