"""Which commit this is a build of."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trio_npu_dra import __version__

UNKNOWN: Final = "unknown"
USER_AGENT: Final = f"trio-npu-dra/{__version__}"
"""What the API server's audit log calls every program of this build."""


def _built() -> str:
    try:
        return Path(__file__).with_suffix("").read_text(encoding="utf-8").strip()
    except OSError:
        return UNKNOWN


REVISION: Final = _built()
"""As requirements/revision.py says it. A tree that is run where it lies, and a build of a source
archive, are of no commit that is known."""


def full_version() -> str:
    """Version and revision for people."""
    if REVISION == UNKNOWN:
        return f"{__version__}, revision unknown: not built from a git repository"
    return f"{__version__}, revision {REVISION}"
