"""Which versions the tests know: one row a Kubernetes version.

A new row needs `kubernetes/<version>.mod` and `.sum`, and `containerd/<version>.mod`
and `.sum` if that version is new too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A Kubernetes version and the containerd it is tried with."""

    kubernetes: str
    containerd: str


DEFAULT = "1.36.3"

RELEASES = {
    release.kubernetes: release for release in (Release(kubernetes=DEFAULT, containerd="2.1.6"),)
}
