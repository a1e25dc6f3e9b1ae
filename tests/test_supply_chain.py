"""The image's content is known and matches the lock file, and unknown facts are reported."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from requirements import audit, pin_base, sbom

DPKG = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12
Description: GNU C Library: Shared libraries
 Version: 0 in a long description is not a field
"""
COPYRIGHT = """\
Format: http://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
License: LGPL-2.1+

License: LGPL-2.1+
 The text of it.

Files: a.c
License: ISC
"""
LOCKED = sbom.pins(sbom.LOCK.read_text(encoding="utf-8"))


def inventory(folder: Path, packages: dict[str, str]) -> Path:
    """An image's inventory with given Python packages and our own."""
    site = folder / sbom.ENVIRONMENT / "lib/python3.13/site-packages"
    for name, version in (packages | {sbom.OURS: "1.0"}).items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (folder / sbom.ENVIRONMENT / "pyvenv.cfg").write_text("home = /usr\nversion = 3.13.9\n")
    status = folder / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    for name, text in (
        ("libc6", COPYRIGHT),
        ("gcc-14-base", "This is gcc.\n\nLicense: of words\n"),
    ):
        (status / name).write_text(DPKG.replace("libc6", name))
        (folder / sbom.DOCUMENTS / name).mkdir(parents=True)
        (folder / sbom.DOCUMENTS / name / "copyright").write_text(text)
    return folder


def test_bill_has_every_locked_package(tmp_path: Path) -> None:
    """The bill has each pin of the runtime lock file, Python, and the Debian packages."""
    output = tmp_path / "sbom.json"
    sbom.main(inventory(tmp_path / "inventory", LOCKED), output)

    bill = json.loads(output.read_text(encoding="utf-8"))
    assert bill["metadata"]["component"]["name"] == sbom.OURS
    assert {component["purl"] for component in bill["components"]} == {
        *(f"pkg:pypi/{name}@{version}" for name, version in LOCKED.items()),
        "pkg:generic/python@3.13.9",
        "pkg:deb/debian/gcc-14-base@2.41-12?arch=amd64",
        "pkg:deb/debian/libc6@2.41-12?arch=amd64",
    }


LICENSES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "expression": ("License-Expression: MIT AND PSF-2.0", [{"expression": "MIT AND PSF-2.0"}]),
    "identifier": ("License: MPL-2.0", [{"license": {"id": "MPL-2.0"}}]),
    "words": ("License: Apache 2.0", [{"license": {"id": "Apache-2.0"}}]),
    "text": (
        f"License: Copyright\n        of somebody\nClassifier: {sbom.CLASSIFIER}MIT License",
        [{"license": {"id": "MIT"}}],
    ),
    "nothing": ("License-File: LICENSE", []),
}


def test_bill_names_licences(tmp_path: Path) -> None:
    """Those that a package names in any of the usual ways; Debian's by Debian's names."""
    folder, output = inventory(tmp_path / "inventory", LOCKED), tmp_path / "sbom.json"
    changed = dict(zip(LOCKED, LICENSES, strict=False))
    for name, kind in changed.items():
        (metadata,) = folder.rglob(f"{name}-{LOCKED[name]}.dist-info/METADATA")
        metadata.write_text(metadata.read_text() + LICENSES[kind][0] + "\n")
    sbom.main(folder, output)

    bill = json.loads(output.read_text(encoding="utf-8"))
    found = {each["name"]: each.get("licenses", []) for each in bill["components"]}
    for name, kind in changed.items():
        assert found[name] == LICENSES[kind][1], kind
    assert found["python"] == [{"license": {"id": "Python-2.0.1"}}]
    assert [each["license"]["name"] for each in found["libc6"]] == ["ISC", "LGPL-2.1+"]
    place = "see /usr/share/doc/gcc-14-base/copyright"
    assert found["gcc-14-base"] == [{"license": {"name": place}}]


def test_image_that_differs_from_the_lock_gets_no_bill(tmp_path: Path) -> None:
    """A package missing, of another version or too many is named."""
    packages = LOCKED | {"trio": "0.1", "left-pad": "1.3"}
    del packages["httpx"]
    with pytest.raises(SystemExit) as caught:
        sbom.main(inventory(tmp_path / "inventory", packages), tmp_path / "sbom.json")

    for words in (
        f"httpx is missing, locked is {LOCKED['httpx']}",
        "left-pad is 1.3, locked is nothing",
        f"trio is 0.1, locked is {LOCKED['trio']}",
    ):
        assert words in str(caught.value)
    assert not (tmp_path / "sbom.json").exists()


HARMLESS = {"name": "trio", "version": "0.35.0", "vulns": []}
SKIPPED = {"name": "httpx", "skip_reason": "Dependency not found on PyPI"}
VULNERABLE = {
    "name": "h11",
    "version": "0.1",
    "vulns": [{"id": "PYSEC-2025-1", "fix_versions": ["0.16"]}],
}


@pytest.mark.parametrize(
    ("packages", "status", "words"),
    [
        ([HARMLESS], 0, "no known vulnerability in 1 packages"),
        ([VULNERABLE, HARMLESS], 1, "h11 0.1: PYSEC-2025-1, fixed in 0.16"),
        ([VULNERABLE, SKIPPED], 1, "h11 0.1: PYSEC-2025-1"),
        ([HARMLESS, SKIPPED], audit.NOT_CHECKED, "NOT CHECKED .* 1 of 2 packages"),
        ([], audit.NOT_CHECKED, "NOT CHECKED"),
    ],
    ids=["harmless", "vulnerable", "vulnerable, one not found", "not found", "nothing"],
)
def test_audit_claims_no_more_than_it_has_seen(
    packages: list[dict[str, Any]], status: int, words: str
) -> None:
    """Packages that could not be looked up do not count as harmless."""
    verdict, lines = audit.verdict(packages)
    assert verdict == status
    assert re.search(words, "\n".join(lines))


# --- the base image ------------------------------------------------------------------------------

DOCKERFILE = pin_base.DOCKERFILE.read_text(encoding="utf-8")
BOTH = [{"platform": {"os": "linux", "architecture": each}} for each in ("amd64", "arm64")]


def registry(programs: Path, monkeypatch: pytest.MonkeyPatch, manifests: object) -> bytes:
    """A `skopeo` with one answer for everything; returns the bytes of that answer."""
    raw = json.dumps({"manifests": manifests}).encode()
    (programs / "index").write_bytes(raw)
    program = programs / "skopeo"
    program.write_text(f"#!/bin/sh\necho $* >{programs}/asked\nexec cat {programs}/index\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return raw


def test_image_is_built_on_a_pinned_base() -> None:
    """There is one base, pinned by digest, and no other image."""
    name, _ = pin_base.pinned(DOCKERFILE)
    assert name == "docker.io/library/python:3.13-trixie"
    stages = re.findall(r"^FROM (\S+) AS (\w[\w-]*)$", DOCKERFILE, re.MULTILINE)
    assert len(stages) == DOCKERFILE.count("\nFROM ")
    known = {"scratch", "${PYTHON_IMAGE}"}
    for base, stage in stages:
        assert base in known
        known.add(stage)
    assert "PYTHON_IMAGE" not in DOCKERFILE[DOCKERFILE.index("AS dependencies") :]


@pytest.mark.parametrize(
    "line",
    [
        "ARG PYTHON_IMAGE=docker.io/library/python:3.13-trixie",
        f"ARG PYTHON_IMAGE=docker.io/library/python:3.13-trixie@sha256:{'0' * 63}",
        f"ARG PYTHON_IMAGE=docker.io/library/python@sha256:{'0' * 64}",
    ],
    ids=["no digest", "a digit too few", "no tag"],
)
def test_base_that_is_not_pinned_is_refused(line: str) -> None:
    """The error has the required form of the line."""
    with pytest.raises(SystemExit, match="PYTHON_IMAGE=<name>:<tag>@sha256:<64 digits>"):
        pin_base.pinned(f"# a Dockerfile\n{line}\nFROM scratch\n")


def test_pin_follows_the_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new digest is that of the registry's bytes; nothing else changes."""
    raw = registry(tmp_path, monkeypatch, BOTH)
    file = tmp_path / "Dockerfile"
    file.write_text(DOCKERFILE)
    pin_base.main(file)

    name, before = pin_base.pinned(DOCKERFILE)
    now = hashlib.sha256(raw).hexdigest()
    assert file.read_text() == DOCKERFILE.replace(before, now)
    assert (tmp_path / "asked").read_text() == f"inspect --raw docker://{name}\n"


def test_pin_stands_for_all_architectures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image of one architecture is not pinned: builds on the other would get the wrong one."""
    registry(tmp_path, monkeypatch, BOTH[:1])
    file = tmp_path / "Dockerfile"
    file.write_text(DOCKERFILE)
    with pytest.raises(SystemExit, match="no index with an image for arm64"):
        pin_base.main(file)
    assert file.read_text() == DOCKERFILE
