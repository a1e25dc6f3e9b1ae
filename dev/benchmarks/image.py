"""The driver as users run it: in the root of its image, on the image's Python.

The image is built as the tests build it, on Debian's packages. Its files are laid out in a folder,
and programs are started there by chroot: a container runtime would do more before it starts them,
which is no time of the driver's. Sockets and files are at the same place on both sides.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from dev.benchmarks import account
from dev.benchmarks.api import Api
from dev.benchmarks.machine import python_build
from dev.cluster import images
from dev.cluster.binaries import locked, pause
from dev.cluster.control_plane import ControlPlane
from dev.cluster.deploy import ROOT, make_wheels
from dev.cluster.past import Past
from dev.cluster.processes import ClusterError, Program, run, wait_until
from trio_npu_dra.kit.api.credentials import SERVICE_ACCOUNT

ENVIRONMENT: Final = (
    "PATH=/opt/npu-dra/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONDONTWRITEBYTECODE=1",
)
"""That of the image."""
PACKAGES: Final = ("trio", "grpclib", "h2", "httpx", "httpcore", "betterproto2", "pydantic")
_MOUNTS: Final = """
for place in dev proc sys; do mount --rbind "/$place" "$0/$place"; done
mkdir -p "$0$1"
mount --bind "$1" "$0$1"
exec "$2"
"""
_VERSIONS: Final = """
import json
from importlib.metadata import distributions
print(json.dumps({each.name: each.version for each in distributions()}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image with programs that can be started; its mounts end with the program `mounts`."""

    root: Path
    mounts: Program
    environment: tuple[str, ...] = ENVIRONMENT

    @property
    def board(self) -> Path:
        """The compiled simulator, as `create_board` takes it; that of a commit has none."""
        return self.root / "usr/local/share/trio-npu-dra/simulator"

    def command(self, *argv: str) -> tuple[str, ...]:
        """The command that starts one of its programs, in the process that executes it."""
        mounts = f"--mount=/proc/{self.mounts.process.pid}/ns/mnt"
        return (
            *("nsenter", mounts, "--", "env", "-i", *self.environment),
            *("chroot", str(self.root), *argv),
        )

    def with_account(self, plane: ControlPlane, api: Api, *, node: str) -> Self:
        """This image with programs that find the API server as in a pod of a new Node."""
        account.mount(plane, api, self.root / SERVICE_ACCOUNT.relative_to("/"), node=node)
        variables = (f"{name}={value}" for name, value in account.environment(plane).items())
        return replace(self, environment=(*self.environment, *variables))

    def facts(self) -> str:
        """Its Python and its packages, for the figures."""
        found = json.loads(run(*self.command("python3", "-c", _VERSIONS)))
        packages = ", ".join(f"{name} {found[name]}" for name in PACKAGES if name in found)
        return f"in the root of its image, {python_build(self.command('python3'))}, {packages}"


@contextmanager
def image(name: str, folder: Path, *, commit: str = "") -> Iterator[Image]:
    """Build an image, and have its root until the end of the block.

    Args:
        name: Its name in the storage of the tests, and that of its folder.
        folder: What programs in it share with this machine; its root is a folder there too.
        commit: The commit whose tree it is built from; without it, from this tree.

    Raises:
        ClusterError: There is no such commit, or the build failed.
    """
    root = folder / f"root-of-{name}"
    print(f"building the image of {commit or 'this tree'}", flush=True)
    with locked("driver"):  # tests may build at the same time
        if commit:
            tree, target = Past(commit=commit).tree(), None
        else:
            make_wheels()
            tree, target = ROOT, "simulator"
        tag = images.build_driver_image(tree, target=target, tag=f"{name}:bench")
        images.lay_out(tag, root)
    words = ("unshare", "--mount", "--propagation", "private", "--", "sh", "-euc", _MOUNTS)
    mounts = Program.start(f"mounts-of-{name}", [*words, root, folder, pause()], logs=folder)
    try:
        wait_until(lambda: _is_held(mounts), f"the mounts of {root}", timeout=20)
        yield Image(root=root, mounts=mounts)
    finally:
        mounts.kill()
        shutil.rmtree(root)  # only now: its mounts are the machine's folders


def commit_of(revision: str) -> str:
    """The commit that a revision names: a branch, a tag, or `HEAD~3`.

    Raises:
        ClusterError: It names none in this clone.
    """
    try:
        return run(
            "git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", cwd=ROOT
        ).strip()
    except ClusterError as error:
        raise ClusterError(f"{revision!r} is no commit of the clone {ROOT}") from error


def _is_held(mounts: Program) -> bool:
    mounts.check()
    return Path(f"/proc/{mounts.process.pid}/cmdline").read_bytes().startswith(bytes(pause()))
