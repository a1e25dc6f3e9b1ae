"""Steps: what has to be done to the hardware before a claim's containers can start, and undone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.kit.base.errors import ClaimUnavailable


class Step(Protocol):
    """Something reversible that a claim may need.

    Both directions are idempotent, may be cancelled, and may be called for a step that was half
    done by a process that died. Steps of one claim never run side by side.
    """

    @property
    def name(self) -> str:
        """What the record calls it; never changed, and never used again for something else."""
        ...

    def is_needed(self, entry: Entry) -> bool:
        """Whether a claim needs it; the same for equal devices, whenever it is asked."""
        ...

    def is_lost(self, entry: Entry) -> bool:
        """Whether its work for a ready claim was undone, for example by `npu-smi`.

        It is asked often, and looks at the node's files at most. Lost work is done again.
        """
        ...

    async def do(self, entry: Entry) -> None:
        """Do it. What it finds out and must not be forgotten it puts into the ledger at once.

        Raises:
            DriverError: It failed; a retryable one is tried again within the kubelet's call.
        """
        ...

    async def undo(self, entry: Entry) -> None:
        """Undo it; one that was never done, or is undone already, is fine.

        Raises:
            DriverError: As above, such as `Busy`.
        """
        ...

    async def tidy(self) -> None:
        """Put right what concerns no single call, such as what a claim left that is gone.

        Asked every few seconds, at first before anything is known of the chips.

        Raises:
            DriverError: It failed, and is tried again at the next look.
        """
        ...


class Steps:
    """All steps that this version knows, in the order in which they are done."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)
        self._by_name = {step.name: step for step in steps}

    def needed(self, entry: Entry) -> list[Step]:
        """Those that a claim needs, in order."""
        return [step for step in self._steps if step.is_needed(entry)]

    def lost(self, entry: Entry) -> Step | None:
        """The first step of a claim that is ready whose work is gone."""
        known = (self._by_name.get(name) for name in entry.steps)
        return next((step for step in known if step is not None and step.is_lost(entry)), None)

    def by_name(self, names: Iterable[str]) -> list[Step]:
        """The steps of these names, in their order.

        Raises:
            ClaimUnavailable: Some are of a newer version.
        """
        names = tuple(names)
        unknown = [name for name in names if name not in self._by_name]
        if unknown:
            raise ClaimUnavailable(
                f"a newer version of the driver has prepared the claim with {', '.join(unknown)}, "
                "which this version cannot take back: install the newer version again"
            )
        return [self._by_name[name] for name in names]
