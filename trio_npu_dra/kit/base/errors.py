"""Every error that the driver raises on purpose, by what its reader can do about it.

A port (hardware, API server, disk) translates foreign errors into these once. A `ClaimError`
becomes the text of that claim in the kubelet's reply, so its message addresses the pod's owner. The
rest goes to the log, with messages for the operator of the node.
"""

from __future__ import annotations

from typing import ClassVar


class DriverError(Exception):
    """Base of all errors of the driver.

    Attributes:
        retryable: Whether the same call may succeed a moment later without action by people.
    """

    retryable: ClassVar[bool] = False


class ConfigError(DriverError):
    """A flag, an environment variable or a file given by the operator is wrong."""


class ReaderGone(DriverError):
    """Who reads what a program prints has ended, as `head` does when it has seen enough."""


class CannotCompile(DriverError):
    """The C compiler of the simulator is missing or fails; the message has its output."""


class ControlError(DriverError):
    """The daemon of this node does not answer, or refused the request."""


class InvalidPool(DriverError):
    """The devices to publish contradict themselves; the API server is not asked."""


# --- one claim cannot be prepared ----------------------------------------------------------------


class ClaimError(DriverError):
    """This claim cannot be prepared; other claims of the call are not affected."""


class ClaimNotAllocated(ClaimError):
    """The claim has no allocation (yet), is gone, or was replaced by one with another UID.

    The kubelet asks for allocated claims only, so an immediate second request is no help.
    """


class UnknownDevice(ClaimError):
    """The allocation names a device that this node does not have."""


class InvalidOpaqueConfig(ClaimError):
    """A config for this driver is wrong, or cannot be followed; the message names the field."""


class DeviceHeld(ClaimError):
    """Another claim holds the device; the message names that claim.

    Attributes:
        holder: That claim's UID; empty if no readable record names it.
    """

    retryable = True

    def __init__(self, message: str, *, holder: str = "") -> None:
        self.holder = holder
        super().__init__(message)


class HoldGone(ClaimError):
    """Another call released the claim at the same moment."""

    retryable = True


class ClaimUnavailable(ClaimError):
    """Something around the claim failed (API server, disk, hardware) and kept failing."""

    retryable = True


class DevicesUnknown(ClaimUnavailable):
    """A device, or all of them, cannot be asked now, as at every start; nothing is wrong so far."""


class AllocationRefused(DriverError):
    """A container cannot have the device plugin's devices that the kubelet chose for it."""


# --- ports ---------------------------------------------------------------------------------------


class HostFileMissing(DriverError):
    """The host lacks what containers need; the message is written for the owner of the pod."""

    retryable = True


class KubeError(DriverError):
    """The API server refused a request, or could not be reached.

    Attributes:
        status: The HTTP status, `None` when there was no answer.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class NotFound(KubeError):
    """404, said by the API server itself: the object does not exist.

    Attributes:
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

    Attributes:
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

    Attributes:
        beginning: The first bytes of the answer.
    """

    def __init__(self, message: str, *, beginning: bytes = b"") -> None:
        self.beginning = beginning
        super().__init__(message)


class KubeletSilent(DriverError):
    """The kubelet does not answer the driver's call; the message names the socket."""

    retryable = True


class StorageError(DriverError):
    """A record, CDI file or socket could not be read or written; the message names the path."""

    retryable = True


class LockHeld(StorageError):
    """Another process holds a lock for longer than the caller waits."""


class ForeignFile(StorageError):
    """Something foreign has the name of one of the driver's files or folders."""

    retryable = False


class RecordCorrupt(StorageError):
    """A claim record does not parse: the driver sets it aside, or has not written it."""

    retryable = False
