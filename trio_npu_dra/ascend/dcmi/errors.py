"""Errors of libdcmi.so, by what their reader can do about them."""

from __future__ import annotations

from trio_npu_dra.kit.base.errors import DriverError


class DcmiError(DriverError):
    """A call into libdcmi.so failed.

    Args:
        code: The return code, negative (DCMI reference, chapter "return codes"); 0 if the call
            succeeded, but its answer cannot be used.
        function: The C function that returned it; empty if none has returned.
        meaning: The vendor's text for the code, or what happened instead.
    """

    def __init__(self, code: int, function: str, meaning: str = "") -> None:
        self.code = code
        self.function = function
        returned = f"{function} returned {code}" + (f" ({meaning})" if meaning else "")
        super().__init__(returned if function else meaning)


class LibraryMissing(DcmiError):
    """libdcmi.so cannot be loaded; the message lists the paths that were tried."""

    def __init__(self, message: str) -> None:
        self.code = 0
        self.function = "dlopen"
        DriverError.__init__(self, message)


class NotReady(DcmiError):
    """The chip is booting or the library is not initialised (-8012)."""

    retryable = True


class Busy(DcmiError):
    """The device is in use or upgrading, or the call timed out."""

    retryable = True


class Slow(Busy):
    """The call has not returned, but it has not taken so long that it counts as hung."""


class NotSupported(DcmiError):
    """This chip or Ascend driver does not offer the function (-8255, or the library lacks it)."""


class NotPermitted(DcmiError):
    """The process lacks the rights for the function (-8002)."""


class TemplateRefused(DcmiError):
    """The chip has no room for a vNPU, or the Ascend driver has no such template (-8001)."""


class IdUnknown(DcmiError):
    """No chip or vNPU has this id (any more)."""
