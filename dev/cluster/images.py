"""Images made only of Debian's packages and this tree, in a storage of our own.

Each base image is made once; the cache keeps it under a key of its recipe.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.binaries import cache, locked, pause, workspace
from dev.cluster.processes import ClusterError, run
from dev.cluster.registry import Registry, storage

HERE = Path(__file__).parent
SUITE = "trixie"
UNNAMED_KEPT = 40
"""Images without a name that are kept for the builds to come: those of a few trees."""
CLUTTER = ("dev", "var/cache/apt", "var/lib/apt/lists", "usr/share/man", "usr/share/locale")
"""Files that no test reads and that every pull would carry."""
BUILDING = ("--isolation=chroot", "--pull-never", "--layers", "--force-rm")
"""The options of each build: nothing is pulled, and nothing runs in a container.

Every stage is kept for builds to come. What it was made in is not; buildah would keep that too.
"""
DOCUMENTS = 'find "$1"/usr/share/doc -type f ! -name copyright -delete'
"""The licences among them stay, as in Debian's own images: the driver's image copies some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A base image: its recipe is text, and its key is the text's digest.

    Pods call it `name`, `fill` puts the recipe's files into the build context, `parent` must be
    made before.
    """

    name: str
    recipe: str
    fill: Callable[[Path], None] | None = None
    parent: Base | None = None

    @property
    def containerfile(self) -> str:
        """The recipe, its parent's tag filled in."""
        return self.recipe.replace("PARENT", self.parent.tag if self.parent else "scratch")

    @property
    def tag(self) -> str:
        """Its name in our storage."""
        repository = self.name.partition(":")[0]
        return f"localhost/{repository}:{key(self.containerfile)}"

    def ready(self) -> str:
        """Make it if it is not in the storage.

        Returns:
            Its tag.

        Raises:
            ClusterError: the packages could not be fetched or the build failed.
        """
        if self.parent:
            self.parent.ready()
        with locked("images"):
            if not image_id(self.tag):
                self._build()
        return self.tag

    def _build(self) -> None:
        began = time.monotonic()
        print(f"making the image {self.name}", flush=True)
        with workspace("image") as temp:
            context = Path(temp)
            if self.fill:
                self.fill(context)
            (context / "Containerfile").write_text(self.containerfile)
            buildah("build", *BUILDING, "--tag", self.tag, context)
        print(f"made {self.name} in {time.monotonic() - began:.0f} s", flush=True)


def key(*parts: str) -> str:
    """A short name for what is made of these parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def debian(name: str, *packages: str, then: str = "") -> Base:
    """A base image of Debian's minimal system with further packages.

    `then` is shell text that runs in the finished tree, with its root as the argument.
    """

    def fill(context: Path) -> None:
        root = context / "root"
        run(
            *("debootstrap", "--variant=minbase"),
            *((f"--include={','.join(packages)}",) if packages else ()),
            *(SUITE, root),
            timeout=1800,
        )
        for path in CLUTTER:
            shutil.rmtree(root / path, ignore_errors=True)
            (root / path).mkdir(parents=True)
        run("sh", "-euc", finish, "sh", root)
        run("tar", "-C", root, "-cf", context / "root.tar", ".")
        shutil.rmtree(root)

    finish = "\n".join(filter(None, (DOCUMENTS, then)))
    made_of = " ".join((SUITE, *packages))
    recipe = (
        f"# Debian {made_of}\n"
        + "".join(f"# {line}\n" for line in finish.splitlines())
        + "FROM scratch\n"
        "ADD root.tar /\n"
        "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
        'CMD ["bash"]\n'
    )
    return Base(name=name, recipe=recipe, fill=fill)


def _fill_pause(context: Path) -> None:
    shutil.copy(pause(), context / "pause")


# Like the official Python images: `python` is a name, and pip may write beside the system.
AS_PYTHON_IMAGE = (
    'ln -s python3 "$1/usr/bin/python"; rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED'
)

UBUNTU = debian("library/ubuntu:latest")
UBUNTU_LDPATH = Base(
    name="library/ubuntu-ldpath:latest",
    recipe="FROM PARENT\nENV LD_LIBRARY_PATH=/opt/app/lib\n",
    parent=UBUNTU,
)
PAUSE = Base(
    name="local/pause:1",
    recipe=f"# {hashlib.sha256((HERE / 'pause.c').read_bytes()).hexdigest()}\n"
    'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n',
    fill=_fill_pause,
)
PYTHON = debian(
    "library/python:build",
    *("python3", "python3-venv", "python3-pip", "gcc", "libc6-dev", "libstdc++6", "mount"),
    then=AS_PYTHON_IMAGE,
)
SERVED = (PAUSE, UBUNTU, UBUNTU_LDPATH)
"""The base images that pods of the tests name."""


def build_driver_image(context: Path, *, target: str | None = None, tag: str) -> str:
    """Build a Dockerfile whose images are arguments: each becomes Debian with Python, pip and gcc.

    That image needs no download; nor may anything else in the build. The tag is that of a driver's
    image, `dra-npu:1.0.0`. Returns the tag in our storage.

    Raises:
        ClusterError: the build failed; the message ends with its output.
    """
    name = in_storage(tag)
    base = PYTHON.ready()
    names = re.findall(r"^ARG (\w+_IMAGE)\b", (context / "Dockerfile").read_text(), re.MULTILINE)
    with locked("images"):
        buildah(
            *("build", *BUILDING),
            *(f"--build-arg={name}={base}" for name in names),
            *((f"--target={target}",) if target else ()),
            *("--tag", name, context),
        )
    return name


def lay_out(tag: str, folder: Path) -> None:
    """Write the files of an image of our storage into a folder."""
    with workspace("image") as context:
        Path(context, "Containerfile").write_text(f"FROM {tag}\n")
        options = (*BUILDING, "--output", f"type=local,dest={folder}")
        with locked("images"):
            buildah("build", *options, context)


def in_storage(tag: str) -> str:
    """What our storage calls a driver's image, `dra-npu:1.0.0`."""
    return f"localhost/{tag}"


def push(tag: str, registry: Registry, name: str) -> None:
    """Push an image of our storage, unless the registry has the same one.

    It takes the place of all registries: `quay.io/ascend/cann:1` is `ascend/cann:1` there, and
    `ubuntu` is `library/ubuntu:latest`.
    """
    name = re.sub(r"^[^/]+\.[^/]+/", "", name)
    stamp = storage() / f"{name.replace('/', '_')}.id"
    identity = image_id(tag)
    with locked("registry"):
        if stamp.exists() and stamp.read_text() == identity:
            return
        target = f"docker://{registry.host}/{name}"
        buildah("push", "--tls-verify=false", tag, target, within=registry.network.inside)
        stamp.write_text(identity)


def image_id(tag: str) -> str:
    """The id of an image in our storage; empty if it is not there."""
    listed = buildah("images", "--format", "{{.Name}}:{{.Tag}} {{.ID}}")
    return dict(row.split() for row in listed.splitlines()).get(tag, "")


def tidy() -> None:
    """Remove all but the newest images without a name: a build looks through all that there are."""
    with locked("images"):
        unnamed = buildah("images", "--quiet", "--filter", "dangling=true").split()
        if old := unnamed[UNNAMED_KEPT:]:
            with suppress(ClusterError):  # one that a build uses, or a killed one did, stays
                buildah("rmi", *old)


def buildah(command: str, *args: str | Path, within: Sequence[str] = ()) -> str:
    """Run a command of buildah on a storage in our cache, never on the machine's.

    `within` comes before it, to enter the network that it needs. It runs in a mount namespace of
    its own, with which its overlay mounts end; what it knows of mounts is as short-lived.
    """
    policy = ("--signature-policy", HERE / "policy.json")
    with workspace("buildah") as temp:
        return run(
            *(*within, "unshare", "--mount", "--propagation", "private", "--"),
            *("buildah", "--root", cache() / "buildah", "--runroot", temp),
            *("--storage-driver", "overlay", command),
            *(policy if command in {"build", "from", "push"} else ()),
            *args,
            timeout=1800,
        )


def main() -> None:
    """Make every base image."""
    for base in (PYTHON, *SERVED):
        print(base.name, base.ready())


if __name__ == "__main__":
    main()
