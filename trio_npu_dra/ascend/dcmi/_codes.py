"""The error class of each DCMI return code, and a text for the log.

Source: the vendor's return-codes.md and dcmi_interface_api.h. Code -8020 is "occupied", although
several tools print it as "not ready".
"""

from __future__ import annotations

from trio_npu_dra.ascend.dcmi.errors import (
    Busy,
    DcmiError,
    IdUnknown,
    NotPermitted,
    NotReady,
    NotSupported,
)

INVALID_PARAMETER = -8001
TIME_OUT = -8006
NOT_READY = -8012
NO_CONFIGURATION = -8023
NOT_SUPPORT = -8255

MEANINGS: dict[int, tuple[type[DcmiError], str]] = {
    INVALID_PARAMETER: (DcmiError, "an argument is out of range"),
    -8002: (NotPermitted, "not permitted here: needs root on the host or a privileged container"),
    -8003: (DcmiError, "the library failed to handle memory"),
    -8004: (DcmiError, "a checked string or memory function failed"),
    -8005: (DcmiError, "the library failed inside"),
    TIME_OUT: (Busy, "the device did not answer in time"),
    -8007: (IdUnknown, "no device has this id"),
    -8008: (IdUnknown, "the device does not exist"),
    -8009: (DcmiError, "the kernel driver refused the request"),
    -8010: (DcmiError, "the request could not be sent to the device"),
    -8011: (DcmiError, "no answer could be received from the device"),
    NOT_READY: (NotReady, "the device is booting, or the library is not initialised"),
    -8013: (Busy, "the device is busy, or does not offer this in a container"),
    -8014: (DcmiError, "a file of the Ascend driver could not be read or written"),
    -8015: (DcmiError, "the reset failed"),
    -8016: (DcmiError, "the operation was aborted"),
    -8017: (Busy, "the device's firmware is being upgraded"),
    -8020: (Busy, "the device is used by another process or container"),
    -8022: (DcmiError, "the chip is not partitioned that way"),
    NO_CONFIGURATION: (DcmiError, "the configuration does not exist"),
    NOT_SUPPORT: (NotSupported, "this chip or Ascend driver does not offer it"),
}


def check(code: int, function: str) -> None:
    """Raise the error that a return code stands for; 0 is success.

    Raises:
        DcmiError: Or the subclass that says what the caller may do.
    """
    if code != 0:
        error_class, meaning = MEANINGS.get(code, (DcmiError, "a code that is not documented"))
        raise error_class(code, function, meaning)
