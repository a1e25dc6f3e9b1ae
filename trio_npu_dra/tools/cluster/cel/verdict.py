"""What can come of a selector besides yes and no."""

from __future__ import annotations

from trio_npu_dra.kit.base.errors import DriverError


class Undecided(DriverError):
    """This package cannot tell what the scheduler decides; the message says why."""


class SelectorFails(DriverError):
    """The selector fails for a device: the scheduler then gives up on the whole pod."""
