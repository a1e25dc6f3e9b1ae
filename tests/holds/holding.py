"""Holds made by hand."""

from __future__ import annotations

from trio_npu_dra.agent.holds.hold import Hold, Holder, HolderKind
from trio_npu_dra.ascend.partition import Partition


def hold(
    device: str,
    *numbers: int,
    claim: str = "train",
    observer: bool = False,
    vnpu: int | None = None,
    share: str | None = None,
) -> Hold:
    """A claim's hold on some chips, on a share of them, or on a partition of one."""
    return Hold(
        holder=Holder(kind=HolderKind.CLAIM, namespace="ml", name=claim, uid=claim),
        device=device,
        nodes=frozenset(f"/dev/davinci{number}" for number in numbers),
        observer=observer,
        share=share,
        partition=Partition(template="vir06_1c_16g", vnpu=vnpu) if vnpu is not None else None,
    )
