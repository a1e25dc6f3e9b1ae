"""Every error that this driver raises on purpose, by what its reader can do about it.

A port (DCMI, the API server, the disk) translates foreign errors into these once. A `ClaimError`
becomes the text of that claim in the kubelet's reply, so its message addresses the pod's owner; all
others go to the log, and their messages address the operator of the node.
"""

from __future__ import annotations

from typing import ClassVar


class NpuDraError(Exception):
    """Base of all errors of this package.

    Attributes:
        retryable: Whether the same call may succeed a moment later without action by people.
    """

    retryable: ClassVar[bool] = False


class ConfigError(NpuDraError):
    """A flag, an environment variable or a file given by the operator is wrong."""


class UnreadableManifest(NpuDraError):
    """A file with manifests cannot be read, or is no YAML; the message begins with the line."""


class ControlError(NpuDraError):
    """The daemon of this node does not answer, or refused the request."""


class InvalidPool(NpuDraError):
    """The devices to be published contradict themselves; found before the API server is asked."""


# --- one claim cannot be prepared ----------------------------------------------------------------


class ClaimError(NpuDraError):
    """This claim cannot be prepared; other claims of the call are not affected."""


class ClaimNotAllocated(ClaimError):
    """The claim has no allocation (yet), is gone, or was replaced by one with another UID.

    The kubelet asks for allocated claims only, so asking the API server again at once is no help.
    """


class UnknownDevice(ClaimError):
    """The allocation names a device that this node does not have."""


class InvalidOpaqueConfig(ClaimError):
    """A config for this driver is wrong, or cannot be followed; the message names the field."""


class DeviceHeld(ClaimError):
    """Another claim holds the device; the message names that claim.

    Args:
        message: Who holds what.
        holder: That claim's UID; empty if it is none whose record can be read.
    """

    retryable = True

    def __init__(self, message: str, *, holder: str = "") -> None:
        self.holder = holder
        super().__init__(message)


class HoldGone(ClaimError):
    """Another call released the claim at the same moment."""

    retryable = True


class ClaimUnavailable(ClaimError):
    """Something around the claim failed (API server, disk, DCMI) and kept failing."""

    retryable = True


class ChipsUnknown(ClaimUnavailable):
    """An NPU, or all of them, cannot be asked now, as at every start; nothing is wrong so far."""


class AllocationRefused(NpuDraError):
    """A container cannot have the device plugin's devices that the kubelet chose for it."""


# --- ports ---------------------------------------------------------------------------------------


class DcmiError(NpuDraError):
    """A call into libdcmi.so failed.

    Args:
        code: The return code, negative (DCMI reference, chapter "return codes").
        function: The C function that returned it; empty if none has returned.
        meaning: The vendor's words for the code, or what happened instead.
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
        NpuDraError.__init__(self, message)


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


class DeviceLost(DcmiError):
    """The device does not exist any more."""


class DeviceNodeMissing(NpuDraError):
    """The host has no device node for an NPU; the message is written for the owner of the pod."""

    retryable = True


class KubeError(NpuDraError):
    """The API server refused a request, or could not be reached.

    Args:
        message: The request and its answer.
        status: The HTTP status, `None` when there was no answer.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class NotFound(KubeError):
    """404, said by the API server itself: the object does not exist.

    Args:
        message: The request and its answer.
        missing: Plural and name of the missing object, `None` when the answer did not say.
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
        message: The request and its answer.
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
    """An answer that is not understood: an immediate retry would get the same one.

    Args:
        message: The request, and what is wrong with its answer.
        beginning: The first bytes of the answer.
    """

    def __init__(self, message: str, *, beginning: bytes = b"") -> None:
        self.beginning = beginning
        super().__init__(message)


class KubeletSilent(NpuDraError):
    """The kubelet does not answer a call of ours; the message names the socket."""

    retryable = True


class StorageError(NpuDraError):
    """A record, CDI file or socket could not be read or written; the message names the path."""

    retryable = True


class LockHeld(StorageError):
    """Somebody else keeps a lock for longer than was to be waited."""


class ForeignFile(StorageError):
    """Something foreign has the name of one of the driver's files or folders."""

    retryable = False


class RecordRefused(StorageError):
    """What is to be noted of a claim could not be read back; the message is for the pod's owner."""

    retryable = False


class RecordCorrupt(StorageError):
    """A claim record does not parse; it was set aside."""

    retryable = False
