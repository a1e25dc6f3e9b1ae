"""Boards to look at, and a worker that notes the calls of a look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

from trio_npu_dra.ascend.dcmi.errors import Busy
from trio_npu_dra.ascend.dcmi.worker import (
    DEADLINE_SECONDS,
    HUNG_SECONDS,
    MAX_WRITTEN_OFF,
    DcmiWorker,
)
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.lab.simulator import Profile, load_profile

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SERVER: Final = load_profile("910b4-8")


def changed(profile: Profile, chips: int, **parts: dict[str, Any]) -> Profile:
    """A machine with the first chips of *profile*, and with parts of it changed."""
    update = {name: getattr(profile, name).model_copy(update=to) for name, to in parts.items()}
    return profile.model_copy(update={"devices": profile.devices[:chips]} | update)


class Look(Protocol):
    """One look at the node."""

    def __call__(self, known: Board = EMPTY_BOARD) -> Awaitable[Board]:
        """What is there, when *known* was there before."""


class Relay(DcmiWorker):
    """Hands each call on to another worker, unless it is refused.

    Attributes:
        devices: The name of each call, and the device that hangs with it.
        deadlines: By the name of the call.
        alone: The names of calls that must run alone.
        out: How many have not returned.
        refused: Names and devices of calls that are answered as if an earlier one hung.
    """

    def __init__(self, worker: DcmiWorker) -> None:
        super().__init__(
            deadline_seconds=DEADLINE_SECONDS,
            hung_seconds=HUNG_SECONDS,
            max_written_off=MAX_WRITTEN_OFF,
        )
        self.devices: list[tuple[str, Hashable]] = []
        self.deadlines: dict[str, float | None] = {}
        self.alone: list[str] = []
        self.out = 0
        self.refused: set[tuple[str, Hashable]] = set()
        self._worker = worker

    @property
    def written_off(self) -> int:
        """As the other worker says."""
        return self._worker.written_off

    def in_the_way(self, beside: Callable[[Hashable], bool]) -> int:
        """The same."""
        return self._worker.in_the_way(beside)

    async def call(
        self,
        function: Callable[[*Ts], T],
        *arguments: *Ts,
        deadline_seconds: float | None = None,
        device: Hashable = None,
        alone: bool = False,
        beside: Callable[[Hashable], bool] = lambda _: False,
        apart: bool = False,
        is_urgent: Callable[[], bool] = lambda: False,
        on_late: Callable[[T], object] | None = None,
    ) -> T:
        """Note it, and hand it on."""
        name = getattr(function, "__name__", "")
        self.devices.append((name, device))
        self.deadlines[name] = deadline_seconds
        if alone:
            self.alone.append(name)
        if (name, device) in self.refused:
            raise Busy(-8006, name, "refused by the test")
        self.out += 1
        try:
            return await self._worker.call(
                function,
                *arguments,
                deadline_seconds=deadline_seconds,
                device=device,
                alone=alone,
                beside=beside,
                apart=apart,
                is_urgent=is_urgent,
                on_late=on_late,
            )
        finally:
            self.out -= 1
