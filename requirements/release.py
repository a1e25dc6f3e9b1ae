#!/usr/bin/env python3
"""What is published of a version: `just release`. Nothing is signed or uploaded.

It builds the image of each platform from a clean commit, with the commit's time as that of all that
is made, and writes into an empty folder: the images as OCI archives, their bills of materials, the
release notes, a provenance statement and SHA256SUMS. docs/release.md says what they are for.

usage: python -m requirements.release --builder BUILDER --builder-id URI --source URI
                                      --version VERSION FOLDER
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from requirements import pin_base, sbom

ROOT = Path(__file__).parent.parent
WHEELS = ROOT / "build/wheels"
IMAGE = "dra-npu"
PLATFORMS = ("linux/amd64", "linux/arm64")
BUILDERS = frozenset({"buildah", "podman"})
"""Docker cannot give all files one time, and writes no OCI archive of a built image."""
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:trio-npu-dra:just-release:v1"
SUMS = "SHA256SUMS"
PROVENANCE = "provenance.json"
NOTES = "release-notes.md"


def notes(changelog: str, version: str) -> str:
    """What the changelog says of a version.

    Raises:
        SystemExit: It has no section of that version, or the section has no date.
    """
    found = re.search(
        rf"^## \[{re.escape(version)}\] - (\S+)\n(.*?)(?=^## |\Z)",
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    if found is None:
        sys.exit(f"CHANGELOG.md has no section `## [{version}] - <date>`")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        sys.exit(
            f"CHANGELOG.md: version {version} has the date {found[1]}: give it one (YYYY-MM-DD)"
        )
    return f"# {IMAGE} {version}, {found[1]}\n\n{found[2].strip()}\n"


def sha256(file: Path) -> str:
    """The digest of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def manifest_digest(archive: Path) -> str:
    """The digest by which a registry knows the one image of an OCI archive."""
    with tarfile.open(archive) as tar:
        index = tar.extractfile("index.json")
        assert index is not None, "a regular file"
        (image,) = json.load(index)["manifests"]
    return str(image["digest"]).removeprefix("sha256:")


def materials(commit: str, source: str, dockerfile: str, wheels: Path) -> list[dict[str, Any]]:
    """What the image is made of: commit, base image and wheels, each with its digest."""
    name, digest = pin_base.pinned(dockerfile)
    return [
        {"uri": f"git+{source}@{commit}", "digest": {"gitCommit": commit}},
        {"uri": f"docker://{name}", "digest": {"sha256": digest}},
        *(
            {
                "name": wheel.name,
                "uri": package_url(wheel.name),
                "digest": {"sha256": sha256(wheel)},
            }
            for wheel in sorted(wheels.glob("*.whl"))
        ),
    ]


def package_url(wheel: str) -> str:
    """The package that a wheel is of."""
    name, version, _ = wheel.split("-", maxsplit=2)
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"


def statement(
    *,
    subjects: Mapping[str, str],
    version: str,
    builder: str,
    resolved: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The provenance of what was made.

    Args:
        subjects: The digest (SHA-256) of each thing by name.
        version: The version.
        builder: The URI of who runs the build, and vouches for it.
        resolved: The materials.
    """
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": version, "platforms": list(PLATFORMS)},
                "resolvedDependencies": list(resolved),
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }


class Release:
    """One version, made into a folder by a builder."""

    def __init__(self, folder: Path, *, builder: str, version: str) -> None:
        self.folder = folder
        self.version = version
        self.commit = git("rev-parse", "HEAD")
        self._builder = shlex.split(builder)
        self._time = git("log", "-1", "--format=%ct")
        self.subjects: dict[str, str] = {}

    def make_image(self, platform: str) -> None:
        """Build the image of a platform; write its archive and its bill of materials."""
        machine = platform.rpartition("/")[2]
        tag = f"localhost/{IMAGE}:{self.version}-{machine}"
        archive = self.folder / f"{IMAGE}-{self.version}-{machine}.oci.tar"
        self._build(platform, f"--tag={tag}")
        self._run("push", tag, f"oci-archive:{archive}")
        self.subjects[f"{IMAGE}:{self.version} ({platform})"] = manifest_digest(archive)
        with tempfile.TemporaryDirectory() as temp:
            output = f"type=local,dest={temp}"
            self._build(platform, "--target=inventory", f"--output={output}")
            sbom.main(Path(temp), self.folder / f"{IMAGE}-{self.version}-{machine}.sbom.json")

    def _build(self, platform: str, *arguments: str) -> None:
        self._run(
            *("build", f"--platform={platform}", f"--timestamp={self._time}"),
            f"--build-arg=VERSION={self.version}",
            f"--build-arg=REVISION={self.commit}",
            *(*arguments, str(ROOT)),
        )

    def _run(self, *arguments: str) -> None:
        subprocess.run([*self._builder, *arguments], check=True, stdout=subprocess.DEVNULL)

    def write(self, name: str, text: str) -> None:
        """Write a further file."""
        (self.folder / name).write_text(text, encoding="utf-8")

    def sums(self) -> dict[str, str]:
        """The digest of each file so far, by name."""
        return {file.name: sha256(file) for file in sorted(self.folder.iterdir())}


def git(*arguments: str) -> str:
    """What git says of this tree."""
    command = ("git", "-C", str(ROOT), *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def check(builder: str, folder: Path) -> None:
    """Refuse what would make a false statement.

    Raises:
        SystemExit: The builder is none that can do it, the folder is not empty, or the tree is not
            as the commit has it.
    """
    if not BUILDERS.intersection(Path(word).name for word in shlex.split(builder)[:1]):
        sys.exit(f"NPU_DRA_BUILDER is {builder}: a release is made by buildah or podman")
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: remove it, or name another folder")
    if changes := git("status", "--porcelain"):
        sys.exit(f"the tree is not as the commit has it:\n{changes}")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in ("--builder", "--builder-id", "--source", "--version"):
        parser.add_argument(name, required=True)
    wanted = parser.parse_args()
    check(wanted.builder, wanted.folder)
    changes = notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), wanted.version)
    wanted.folder.mkdir(parents=True, exist_ok=True)
    release = Release(wanted.folder.absolute(), builder=wanted.builder, version=wanted.version)
    for platform in PLATFORMS:
        release.make_image(platform)
    release.write(NOTES, changes)
    dockerfile = pin_base.DOCKERFILE.read_text(encoding="utf-8")
    made = statement(
        subjects=release.subjects | release.sums(),
        version=wanted.version,
        builder=wanted.builder_id,
        resolved=materials(release.commit, wanted.source, dockerfile, WHEELS),
    )
    release.write(PROVENANCE, json.dumps(made, indent=2) + "\n")
    sums = release.sums()
    release.write(SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    print(f"{wanted.folder}: {', '.join((*sums, SUMS))}")


if __name__ == "__main__":
    main()
