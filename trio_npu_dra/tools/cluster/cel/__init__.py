"""CEL selectors of DRA, evaluated as the scheduler does or not at all.

It knows devices and quantities, and no pools, claims or pods. Other packages import from
`selector` and `tokens` (which needs no library), and these exceptions.
"""

from __future__ import annotations

from trio_npu_dra.kit.base.errors import DriverError

__all__ = ["SelectorFails", "Undecided", "selector", "tokens"]


class Undecided(DriverError):
    """This package cannot tell what the scheduler decides; the message says why."""


class SelectorFails(DriverError):
    """The selector fails for a device: the scheduler then gives up on the whole pod."""
