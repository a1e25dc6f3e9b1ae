"""Steps: reversible changes of the hardware that a claim's containers need before they start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.kit.base.errors import ClaimUnavailable


class Step(Protocol):
    """A reversible change.

    Both directions are idempotent, may be cancelled, and may be called for a step that a killed
    process left half done. Steps of one claim never run side by side.
    """

    @property
    def name(self) -> str:
        """Its name in records; never changed, and never used again for another step."""
        ...

    def is_needed(self, entry: Entry) -> bool:
        """Whether a claim needs it; it depends on the entry's devices alone."""
        ...

    def is_lost(self, entry: Entry) -> bool:
        """Whether its work for a ready claim was undone, for example by `npu-smi`.

        Called often, so it reads files of the node at most. Lost work is done again.
        """
        ...

    async def do(self, entry: Entry) -> None:
        """Do it, and put what must not be forgotten into the ledger before it happens.

        Raises:
            DriverError: It failed; a retryable one is tried again within the kubelet's call.
        """
        ...

    async def undo(self, entry: Entry) -> None:
        """Undo it; a step that was never done, or is undone already, is fine.

        Raises:
            DriverError: As above, such as `Busy`.
        """
        ...

    async def tidy(self) -> None:
        """Correct what belongs to no call, such as a flag that a claim left behind.

        Called every few seconds, first before the chips are known.

        Raises:
            DriverError: It failed, and is tried again at the next look.
        """
        ...


class Steps:
    """All steps of this version, in the order in which they are done."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)
        self._by_name = {step.name: step for step in steps}

    def needed(self, entry: Entry) -> list[Step]:
        """The steps that a claim needs, in order."""
        return [step for step in self._steps if step.is_needed(entry)]

    def lost(self, entry: Entry) -> Step | None:
        """The first step of a ready claim whose work is lost."""
        known = (self._by_name.get(name) for name in entry.steps)
        return next((step for step in known if step is not None and step.is_lost(entry)), None)

    def by_name(self, names: Iterable[str]) -> list[Step]:
        """The steps with these names, in the order of the names.

        Raises:
            ClaimUnavailable: Some are of a newer version.
        """
        names = tuple(names)
        unknown = [name for name in names if name not in self._by_name]
        if unknown:
            raise ClaimUnavailable(
                f"a newer version of the driver has prepared the claim with {', '.join(unknown)}, "
                "which this version cannot undo: install the newer version again"
            )
        return [self._by_name[name] for name in names]
