"""What can come of a selector besides yes and no."""

from __future__ import annotations

from trio_npu_dra.kit.base.errors import NpuDraError


class Undecided(NpuDraError):
    """This package cannot tell what the scheduler decides; the message says why."""


class SelectorFails(NpuDraError):
    """The selector fails for a device: the scheduler then gives up on the whole pod."""
