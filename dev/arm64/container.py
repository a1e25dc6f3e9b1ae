"""Containers whose programs are for arm64: qemu emulates them, as `dev.cluster.emulated` says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from dev.cluster.images import ARM64, buildah, invocation

IMAGE = "docker.io/library/dra-npu:arm64"
"""What the driver's image is called here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container; its programs have all rights in the user namespace.

    Attributes:
        name: What buildah calls it.
        volumes: Folders of this machine, by where they are in it.
    """

    name: str
    volumes: Mapping[str, Path]

    @contextmanager
    def invocation(
        self, *argv: str, environment: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[list[str | Path]]:
        """The words that run a program in it, for a process that runs while inside.

        The process's end is the end of all that it started.
        """
        volumes = (f"--volume={source}:{place}" for place, source in self.volumes.items())
        variables = (f"--env={name}={value}" for name, value in environment.items())
        options = ("--isolation=chroot", "--cap-add=all", *volumes, *variables)
        with invocation("run", *options, self.name, "--", *argv, storage=ARM64) as words:
            yield words


@contextmanager
def container(image: str, **volumes: Path) -> Iterator[Container]:
    """A new container of an image; it is removed at the end.

    Args:
        image: The image in our storage.
        volumes: Folders of this machine that it has at `/name`.
    """
    name = buildah("from", "--pull-never", image, storage=ARM64).strip()
    try:
        places = {f"/{place}": source for place, source in volumes.items()}
        yield Container(name=name, volumes=places)
    finally:
        buildah("rm", name, storage=ARM64)
