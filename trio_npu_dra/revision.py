"""Which commit this is a build of."""

from __future__ import annotations

import subprocess
import sys
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
"""As requirements/revision.py found it at the build: unknown for a source archive, and for a tree
that is run in place; there only `full_version` asks."""


def full_version() -> str:
    """Version and revision for people."""
    revision, program = REVISION, Path(__file__).parents[1] / "requirements/revision.py"
    if revision == UNKNOWN and program.exists():
        command = [sys.executable, str(program)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        revision = done.stdout.strip() or UNKNOWN
    if revision == UNKNOWN:
        return f"{__version__}, revision unknown: not built from a git repository"
    return f"{__version__}, revision {revision}"
