"""The published files of a version state their sources truly."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from requirements import pin_base, release
from tests.test_supply_chain import LOCKED, inventory

CHANGELOG = """\
# Changelog

## [Unreleased]

## [1.1.0] - 2027-01-02

### Added

- A thing.

## [1.0.0] - unreleased

- The first.
"""
BUILDER = """\
#!/bin/sh
set -eu
echo "$*" >>"{folder}/calls"
case "$*" in
push*) tar -C "{folder}" -cf "${{3#oci-archive:}}" index.json ;;
*--output*)
    for word; do
        case $word in --output=*) cp -r "{folder}/inventory/." "${{word##*=}}" ;; esac
    done ;;
esac
"""
DIGEST = "ab" * 32


def test_notes_are_the_versions_section() -> None:
    """With its date, without other versions."""
    assert release.notes(CHANGELOG, "1.1.0") == (
        "# dra-npu 1.1.0, 2027-01-02\n\n### Added\n\n- A thing.\n"
    )


@pytest.mark.parametrize(
    ("version", "words"),
    [("2.0.0", r"no section `## \[2.0.0\]"), ("1.0.0", "has the date unreleased")],
)
def test_version_without_notes_is_refused(version: str, words: str) -> None:
    """Its section is missing, or is not finished."""
    with pytest.raises(SystemExit, match=words):
        release.notes(CHANGELOG, version)


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        ("docker", r"NPU_DRA_BUILDER is docker: .* buildah or podman"),  # it cannot fix times
        ("buildah", "is not empty"),  # files of another version would get into the checksums
    ],
)
def test_unfit_builder_or_folder_is_refused(tmp_path: Path, builder: str, words: str) -> None:
    """The error names the setting and the builders that can, or the folder."""
    (tmp_path / "old").touch()
    with pytest.raises(SystemExit, match=words):
        release.check(builder, tmp_path)


@pytest.fixture
def made(tmp_path: Path) -> release.Release:
    """A version, by a builder that takes notes and makes an archive with one image."""
    index = {"manifests": [{"digest": f"sha256:{DIGEST}"}]}
    (tmp_path / "index.json").write_text(json.dumps(index))
    inventory(tmp_path / "inventory", LOCKED)
    builder = tmp_path / "buildah"
    builder.write_text(BUILDER.format(folder=tmp_path))
    builder.chmod(0o755)
    (tmp_path / "out").mkdir()
    return release.Release(tmp_path / "out", builder=str(builder), version="1.1.0")


def test_image_is_built_at_the_time_of_its_commit(made: release.Release, tmp_path: Path) -> None:
    """Everyone can build the same bytes again; the archive and its bill lie side by side."""
    made.make_image("linux/arm64")

    assert {file.name for file in made.folder.iterdir()} == {
        "dra-npu-1.1.0-arm64.oci.tar",
        "dra-npu-1.1.0-arm64.sbom.json",
    }
    assert made.subjects == {"dra-npu:1.1.0 (linux/arm64)": DIGEST}
    time = release.git("log", "-1", "--format=%ct")
    builds = [line for line in (tmp_path / "calls").read_text().splitlines() if "build " in line]
    assert len(builds) == 2
    for build in builds:
        assert f"build --platform=linux/arm64 --timestamp={time} " in build


def test_statement_has_the_digest_of_everything(tmp_path: Path) -> None:
    """in-toto v1 and SLSA v1: subjects, the commit, the pinned base, each wheel, and who built."""
    wheel = tmp_path / "PyYAML-6.0.3-cp313-cp313-manylinux_2_17_aarch64.whl"
    wheel.write_bytes(b"wheel")
    dockerfile = pin_base.DOCKERFILE.read_text(encoding="utf-8")
    resolved = release.materials("c0ffee", "https://example.com/npu", dockerfile, tmp_path)
    stated: dict[str, Any] = release.statement(
        subjects={"a": DIGEST}, version="1.1.0", builder="https://example.com/ci", resolved=resolved
    )

    assert stated["_type"] == "https://in-toto.io/Statement/v1"
    assert stated["predicateType"] == "https://slsa.dev/provenance/v1"
    assert stated["subject"] == [{"name": "a", "digest": {"sha256": DIGEST}}]
    predicate = stated["predicate"]
    assert predicate["runDetails"]["builder"]["id"] == "https://example.com/ci"
    name, digest = pin_base.pinned(dockerfile)
    assert predicate["buildDefinition"]["resolvedDependencies"] == [
        {"uri": "git+https://example.com/npu@c0ffee", "digest": {"gitCommit": "c0ffee"}},
        {"uri": f"docker://{name}", "digest": {"sha256": digest}},
        {
            "name": wheel.name,
            "uri": "pkg:pypi/pyyaml@6.0.3",
            "digest": {"sha256": hashlib.sha256(b"wheel").hexdigest()},
        },
    ]
