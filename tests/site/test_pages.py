"""What the pages for people say is true: their manifests and tables."""

from __future__ import annotations

import re
import textwrap

import pytest

from dev.site import words
from dev.site.generated import GENERATED
from dev.site.markdown import blocks
from dev.site.reference import _leaves
from dev.site.stage import ROOT, sources
from tests.test_examples import DRIVER, facts_of_devices
from trio_npu_dra.kit.base import errors

FRAGMENTS = {
    "docs/config.md": 1,
    "docs/helm.md": 3,
    "docs/image.md": 1,
    "docs/reference/claim-status.md": 1,
}
"""How many YAML blocks of a page are of no file, but values, or the form of some fields."""


def text_of(page: str) -> str:
    """A page."""
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sources())
def test_manifests_are_those_of_files(page: str) -> None:
    """Each YAML names a file below k8s/ and is a part of it; tests on clusters run the files."""
    shown = [block for block in blocks(text_of(page)) if block.language == "yaml"]
    named = [block for block in shown if block.title]
    for block in named:
        length, whole = block.text.count("\n"), text_of(block.title).splitlines(keepends=True)
        parts = ("".join(whole[start : start + length]) for start in range(len(whole)))
        assert block.title.startswith("k8s/")
        assert textwrap.dedent(block.text) in map(textwrap.dedent, parts)
    assert len(shown) - len(named) == FRAGMENTS.get(page, 0)


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_is_current(name: str) -> None:
    """`just generated` writes it."""
    assert GENERATED[name]() == text_of(name)


def test_attributes_and_capacities_are_those_of_devices() -> None:
    """The tables have each that a device can have, and no other."""
    rows = re.findall(r"^\| (`.*?`) \|", text_of("docs/reference/attributes.md"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w./]+)`", row)}
    known = {
        own if domain == DRIVER else f"{domain}/{own}" for _, domain, own in facts_of_devices()
    }
    assert named == known | {"shares"}


def test_each_error_of_a_claim_has_advice() -> None:
    """And no advice is for an error that is not shown."""
    shown = {kind.__name__ for kind in (*_leaves(errors.ClaimError), *words.OF_THE_NODE)}
    shown |= {errors.AllocationRefused.__name__, errors.HostFileMissing.__name__}
    assert words.ERRORS.keys() == shown
