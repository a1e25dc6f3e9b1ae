#!/usr/bin/env python3
"""The image's bill of materials, as CycloneDX: `just sbom`.

It reads the output of the Dockerfile's stage `inventory`: the image's virtual environment and the
list of the Debian packages that its files are from.

usage: python requirements/sbom.py INVENTORY OUTPUT
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.utils import canonicalize_name

LOCK = Path(__file__).parent / "runtime.txt"
ENVIRONMENT = "opt/npu-dra"
OURS = "trio-npu-dra"
DOCUMENTS = Path("usr/share/doc")
MACHINE_READABLE = tuple(
    f"Format: {scheme}://www.debian.org/doc/packaging-manuals/copyright-format/"
    for scheme in ("https", "http")
)
CLASSIFIER = "License :: OSI Approved :: "
NAMES = {
    "Apache 2.0": "Apache-2.0",
    "MIT -or- Apache License 2.0": "MIT OR Apache-2.0",
    "MIT License": "MIT",
}
"""What packages call a licence in their own words, and its SPDX expression."""


def main(inventory: Path, output: Path) -> None:
    """Write the bill of materials of the image with that inventory.

    Raises:
        SystemExit: The image has other packages than the lock file, or the bill is not valid.
    """
    packages = list(python_packages(inventory))
    ours = next(package for package in packages if package.name == OURS)
    others = [package for package in packages if package is not ours]
    if differing := deviations(others, pins(LOCK.read_text(encoding="utf-8"))):
        sys.exit(f"the image is not what {LOCK.name} says: {'; '.join(differing)}")
    bom = Bom(components=[*others, interpreter(inventory), *debian_packages(inventory)])
    ours.type = ComponentType.CONTAINER
    bom.metadata.component = ours
    bom.register_dependency(ours, bom.components)
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"not a valid bill: {problem}")
    output.write_text(text + "\n", encoding="utf-8")
    print(f"{output}: {len(bom.components)} components")


def python_packages(inventory: Path) -> Iterator[Component]:
    """The packages in the image's virtual environment."""
    (folder,) = (inventory / ENVIRONMENT).glob("lib/python3.*/site-packages")
    for found in metadata.distributions(path=[str(folder)]):
        name = str(canonicalize_name(found.name))
        yield Component(
            name=name,
            version=found.version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("pypi", None, name, found.version),
            licenses=python_licenses(found),
        )


def python_licenses(package: metadata.Distribution) -> list[License]:
    """What a package says of its licence: as an SPDX expression, in words, or by a classifier."""
    fields = package.metadata
    words = "".join((fields.get_all("License-Expression") or fields.get_all("License") or [])[:1])
    if not words or "\n" in words:  # the whole text
        classifiers = fields.get_all("Classifier") or []
        named = [text for text in classifiers if text.startswith(CLASSIFIER)]
        words = named[0].removeprefix(CLASSIFIER) if named else ""
    return [LicenseFactory().make_from_string(NAMES.get(words, words))] if words else []


def interpreter(inventory: Path) -> Component:
    """Python itself, which the official image builds from source, not from Debian."""
    text = (inventory / ENVIRONMENT / "pyvenv.cfg").read_text(encoding="utf-8")
    (version,) = re.findall(r"^version = (\S+)$", text, re.MULTILINE)
    return Component(
        name="python",
        version=version,
        type=ComponentType.PLATFORM,
        purl=PackageURL("generic", None, "python", version),
        licenses=[LicenseFactory().make_from_string("Python-2.0.1")],
    )


def debian_packages(inventory: Path) -> Iterator[Component]:
    """The Debian packages that files of the image are from."""
    for file in sorted((inventory / "var/lib/dpkg/status.d").iterdir()):
        text = file.read_text(encoding="utf-8")
        fields = dict(re.findall(r"^([\w-]+): (.*)$", text, re.MULTILINE))
        name, version = fields["Package"], fields["Version"]
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("deb", "debian", name, version, {"arch": fields["Architecture"]}),
            licenses=debian_licenses(inventory, name),
        )


def debian_licenses(inventory: Path, package: str) -> list[License]:
    """The licences of the sources of a package, by the names that Debian gives them.

    A text that no program can read is named by its place in the image.
    """
    place = DOCUMENTS / package / "copyright"
    text = (inventory / place).read_text(encoding="utf-8")
    names = {f"see /{place}"}
    if text.startswith(MACHINE_READABLE):
        names = set(re.findall(r"^License: *(\S.*)$", text, re.MULTILINE))
    return [DisjunctiveLicense(name=name) for name in sorted(names)]


def pins(lock: str) -> dict[str, str]:
    """The versions of a lock file by canonical package name."""
    found = re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)
    return {str(canonicalize_name(name)): version for name, version in found}


def deviations(packages: Iterable[Component], locked: dict[str, str]) -> list[str]:
    """The differences between the image's Python packages and the lock file, in words."""
    installed = {package.name: package.version for package in packages}
    return [
        f"{name} is {installed.get(name, 'missing')}, locked is {locked.get(name, 'nothing')}"
        for name in sorted(installed.keys() | locked.keys())
        if installed.get(name) != locked.get(name)
    ]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
