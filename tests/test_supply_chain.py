"""What is in the image is known, and known to be what was locked; what is not known is said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from requirements import audit, sbom

DPKG = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12
Description: GNU C Library: Shared libraries
 Version: 0 in a long description is not a field

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1.0
"""
LOCKED = sbom.pins(sbom.LOCK.read_text(encoding="utf-8"))


def inventory(folder: Path, packages: dict[str, str]) -> Path:
    """An image's inventory with those Python packages and our own."""
    site = folder / sbom.ENVIRONMENT / "lib/python3.13/site-packages"
    for name, version in (packages | {sbom.OURS: "1.0"}).items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (folder / sbom.ENVIRONMENT / "pyvenv.cfg").write_text("home = /usr\nversion = 3.13.9\n")
    status = folder / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(DPKG)
    return folder


def test_bill_has_every_locked_package(tmp_path: Path) -> None:
    """Each pin of the runtime lock is in the bill, and Python, and what Debian has installed."""
    output = tmp_path / "sbom.json"
    sbom.main(inventory(tmp_path / "inventory", LOCKED), output)

    bill = json.loads(output.read_text(encoding="utf-8"))
    assert bill["metadata"]["component"]["name"] == sbom.OURS
    assert {component["purl"] for component in bill["components"]} == {
        *(f"pkg:pypi/{name}@{version}" for name, version in LOCKED.items()),
        "pkg:generic/python@3.13.9",
        "pkg:deb/debian/libc6@2.41-12?arch=amd64",
    }


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
    """Packages that could not be looked up are not harmless."""
    verdict, lines = audit.verdict(packages)
    assert verdict == status
    assert re.search(words, "\n".join(lines))
