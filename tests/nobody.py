"""A user whom permission bits stop, also where the tests run as root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def as_nobody() -> Iterator[None]:
    """Give up root's rights while inside; does nothing without them."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


@contextmanager
def closed(*folders: Path) -> Iterator[None]:
    """Let nobody look into these folders while inside."""
    modes = [(folder, folder.stat().st_mode) for folder in folders]
    for folder in folders:
        folder.chmod(0)
    try:
        with as_nobody():
            yield
    finally:
        for folder, mode in modes:
            folder.chmod(mode)
