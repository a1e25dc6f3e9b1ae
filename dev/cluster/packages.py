"""The Debian packages that the cluster needs; `python -m dev.cluster.packages` installs them.

It needs only Python itself, so that it can run before anything is installed. Go 1.26 or newer must
be on the PATH besides.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

PACKAGES = (
    "buildah",
    "ca-certificates",
    "debian-archive-keyring",
    "debootstrap",
    "docker-registry",
    "e2fsprogs",
    "gcc",
    "iproute2",
    "libc6-dev",
    "libseccomp-dev",
    "mount",
    "openssl",
    "pkg-config",
    "prometheus",
    "runc",
    "strace",
    "util-linux",
)


def missing(names: Iterable[str]) -> list[str]:
    """Those of the packages that are not installed."""
    shown = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # it complains about each unknown package
        text=True,
        check=False,
    )
    return [name for name in names if f"{name} installed" not in shown.stdout.splitlines()]


def install(*further: str) -> None:
    """Install what is missing; does nothing, without network, if all is there.

    Args:
        further: Packages that not every cluster needs.
    """
    wanted = missing((*PACKAGES, *further))
    if not wanted:
        return
    print(f"installing {' '.join(wanted)}", flush=True)
    quiet = ("apt-get", "--quiet", "--yes")
    subprocess.run([*quiet, "update"], check=True)
    subprocess.run([*quiet, "install", "--no-install-recommends", *wanted], check=True)


if __name__ == "__main__":
    install()
