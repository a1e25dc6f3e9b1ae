"""A claim of which several pods want to use the NPUs."""

from __future__ import annotations

from dataclasses import dataclass

from trio_npu_dra.agent.holds.hold import Holder


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedClaim:
    """A claim that several pods have.

    Attributes:
        holder: The claim.
        devices: What it has of this driver's, without what it only looks on at, and without what is
            made for several: shares, and what its config shares.
        pods: Their names, sorted.
    """

    holder: Holder
    devices: tuple[str, ...]
    pods: tuple[str, ...]
