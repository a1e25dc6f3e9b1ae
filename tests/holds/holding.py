"""Holds made by hand."""

from __future__ import annotations

from trio_npu_dra.holds.hold import Hold, Holder, HolderKind


def hold(device: str, *numbers: int, claim: str = "train", observer: bool = False) -> Hold:
    """A claim's hold on some chips."""
    return Hold(
        holder=Holder(kind=HolderKind.CLAIM, namespace="ml", name=claim, uid=claim),
        device=device,
        nodes=frozenset(f"/dev/davinci{number}" for number in numbers),
        observer=observer,
    )
