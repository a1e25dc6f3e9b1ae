"""Every error this driver raises on purpose, by what its reader can do about it.

A port (DCMI, the API server, the disk) translates foreign errors into these once. A `ClaimError`
becomes the text of that claim in the kubelet's reply, so its message is written for the owner of
the pod; all others end in the log, written for the operator of the node.
"""

from __future__ import annotations

from typing import ClassVar


class NpuDraError(Exception):
    """Base of all errors of this package.

    Attributes:
        retryable: Whether the same call may succeed a moment later with nothing changed by people.
    """

    retryable: ClassVar[bool] = False


class ConfigError(NpuDraError):
    """A flag, an environment variable or a file given by the operator is wrong."""


class ControlError(NpuDraError):
    """The daemon of this node cannot be asked, or refused what it was asked for."""


# --- one claim cannot be prepared ----------------------------------------------------------------


class ClaimError(NpuDraError):
    """This claim cannot be prepared; the others of the call are not touched."""


class ClaimNotAllocated(ClaimError):
    """The claim has no allocation (yet), is gone, or was replaced by one with another UID."""

    retryable = True


class UnknownDevice(ClaimError):
    """The allocation names a device that this node does not have."""


class InvalidOpaqueConfig(ClaimError):
    """The opaque config for this driver does not parse; the message names the field."""


class DeviceHeld(ClaimError):
    """Another claim holds the device; the message names that claim."""

    retryable = True


class HoldGone(ClaimError):
    """The claim was unprepared by another call while it was to be answered from the ledger."""

    retryable = True


class ClaimUnavailable(ClaimError):
    """Something around the claim failed (API server, disk, DCMI) and kept failing."""

    retryable = True


# --- ports ---------------------------------------------------------------------------------------


class DcmiError(NpuDraError):
    """A call into libdcmi.so failed.

    Args:
        code: The return code, negative (DCMI reference, chapter "return codes").
        function: The C function that returned it.
        meaning: The vendor's words for the code.
    """

    def __init__(self, code: int, function: str, meaning: str = "") -> None:
        self.code = code
        self.function = function
        super().__init__(f"{function} returned {code}" + (f" ({meaning})" if meaning else ""))


class LibraryMissing(DcmiError):
    """libdcmi.so cannot be loaded; the message says where it was looked for."""

    def __init__(self, message: str) -> None:
        self.code = 0
        self.function = "dlopen"
        NpuDraError.__init__(self, message)


class NotReady(DcmiError):
    """The chip is booting or the library is not initialised (-8012)."""

    retryable = True


class Busy(DcmiError):
    """The device is used by someone else, upgrading, or the call timed out."""

    retryable = True


class NotSupported(DcmiError):
    """This chip, driver or place (container, VM) does not offer the function."""


class DeviceLost(DcmiError):
    """The device does not exist any more."""


class KubeError(NpuDraError):
    """The API server refused a request, or could not be asked.

    Args:
        message: What was asked and what came back.
        status: The HTTP status, `None` when there was no answer.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class NotFound(KubeError):
    """404, in the API server's own words: the object does not exist.

    Args:
        message: What was asked and what came back.
        missing: Plural and name of what does not exist, `None` when the answer did not say.
    """

    def __init__(
        self, message: str, *, status: int | None = None, missing: tuple[str, str] | None = None
    ) -> None:
        self.missing = missing
        super().__init__(message, status=status)


class Forbidden(KubeError):
    """401 or 403: the credentials are not known or lack a right."""


class Conflict(KubeError):
    """409: the object exists already, or changed since it was read."""


class Gone(KubeError):
    """410: the resourceVersion is too old to continue a watch; list again."""


class Invalid(KubeError):
    """422 or 400: the API server's validation refused the object."""


class Unavailable(KubeError):
    """429, 5xx, no connection, or an answer that no API server gives.

    Args:
        message: What was asked and what came back.
        status: The HTTP status, `None` when there was no answer.
        retry_after: Seconds the server asked to wait, `None` when it did not say.
    """

    retryable = True

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        self.retry_after = retry_after
        super().__init__(message, status=status)


class Unreadable(Unavailable):
    """An answer that is not understood: asked again at once, it would be the same."""


class StorageError(NpuDraError):
    """A record, CDI file or socket could not be read or written; the message has the path."""

    retryable = True


class LockHeld(StorageError):
    """Somebody else keeps a lock for longer than was to be waited."""


class ForeignFile(StorageError):
    """Something that is not this driver's has the name of one of its files or folders."""

    retryable = False


class RecordCorrupt(StorageError):
    """A claim record does not parse; it was set aside."""

    retryable = False
