"""Finds NPUs as CANN does, and says by which libraries."""

import ctypes
from pathlib import Path


def device_count() -> int:
    """The NPUs of this container.

    Raises:
        OSError: The loader does not find CANN's library, or the Ascend driver's.
    """
    found = ctypes.c_uint()
    status = ctypes.CDLL("libascendcl.so").aclrtGetDeviceCount(ctypes.byref(found))
    assert status == 0, status
    return found.value


def say_libraries() -> None:
    """Print where the loader found them."""
    device_count()
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    for name in ("libascendcl.so", "libdcmi.so"):
        print("loaded", *sorted(path for path in mapped if path.endswith(f"/{name}")), flush=True)
