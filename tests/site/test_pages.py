"""What the pages for people say is true: their links, manifests, outputs and tables."""

from __future__ import annotations

import re
import textwrap
import tomllib

import pytest

from dev.site import words
from dev.site.generated import GENERATED
from dev.site.markdown import blocks
from dev.site.reference import _leaves
from dev.site.stage import ROOT, dead_links, sources
from tests.test_examples import DRIVER, facts_of_devices
from trio_npu_dra.agent.control.report import FaultReport, HealthReport, NpuReport
from trio_npu_dra.agent.report.news import Reason
from trio_npu_dra.agent.settings import Settings
from trio_npu_dra.kit.base import errors
from trio_npu_dra.tools.cli import health

HEALTH = "docs/guides/health.md"
UNHEALTHY = "docs/guides/unhealthy.md"
EXAMPLE = "docs/guides/driver.md"
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
def test_no_link_is_dead(page: str) -> None:
    """Neither to a file nor to a heading, whether GitHub shows the page or the site."""
    assert dead_links(page) == []


@pytest.mark.parametrize("page", sources())
def test_a_list_begins_after_a_blank_line(page: str) -> None:
    """Without it GitHub shows a list, and the site a paragraph."""
    text = re.sub(r"^ *(```+).*?^ *\1 *$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(?![-\d#| ]).+\n(?:-|1\.) .*", text, re.MULTILINE) == []


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


def test_the_pages_about_unhealthy_npus_show_what_people_see() -> None:
    """The table is what the command prints of such NPUs, the Events are those of the code."""
    (block,) = (each for each in blocks(text_of(HEALTH)) if each.language == "console")
    lines = block.text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("faults:"))
    shown = lines[start : lines.index("...")]
    fault = FaultReport(
        code="80E01801",
        level="ManuallySeparateNPU",
        rule="2 times in 24 h",
        text="simulated fault 0x80E01801",
        since="2026-11-21T17:42:46Z",
    )
    npus = (
        NpuReport(
            device="npu-0",
            level=fault.level,
            state="Unhealthy",
            faults=(fault,),
            held_by=("e2e-1/npu",),
        ),
        NpuReport(device="npu-1", level="NormalNPU", state="Healthy"),
    )
    report = HealthReport(watch="events", taints=True, npus=npus)
    assert shown == [*health._header(report), "", *health._table(report)]

    block = next(each for each in blocks(text_of(UNHEALTHY)) if each.language == "console")
    for reason in (Reason.FAULT, Reason.SEPARATED, Reason.RECOVERED):
        (line,) = (line for line in block.text.splitlines() if reason in line)
        said = words.event_example(reason).replace("npu-3", "npu-0")
        said = said.replace("HBM ECC", fault.text)
        said = re.sub(r"since \S+?Z", "since ", said)
        assert said in re.sub(r"since \S+?Z", "since ", line)


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


def test_what_is_said_of_flags_is_of_flags_that_exist() -> None:
    """A flag that goes takes its words with it."""
    assert words.FLAGS.keys() <= Settings.model_fields.keys()


def test_each_error_of_a_claim_has_advice() -> None:
    """And no advice is for an error that is not shown."""
    shown = {kind.__name__ for kind in (*_leaves(errors.ClaimError), *words.OF_THE_NODE)}
    shown |= {errors.AllocationRefused.__name__, errors.HostFileMissing.__name__}
    shown |= {errors.RecordRefused.__name__}
    assert words.ERRORS.keys() == shown


def test_the_page_about_the_example_shows_all_of_it() -> None:
    """Line by line and in order; blank lines between its parts do not count."""
    shown = "".join(each.text for each in blocks(text_of(EXAMPLE)) if each.language == "python")
    files = ("__init__.py", "__main__.py")
    whole = "".join(text_of(f"trio_npu_dra/lab/example/{name}") for name in files)
    assert [line for line in shown.splitlines() if line] == [
        line for line in whole.splitlines() if line
    ]


def test_navigation_has_each_page_once() -> None:
    """No page of docs/ is hidden, those of elsewhere exist, and only sections have names there."""
    nav = tomllib.loads(text_of("zensical.toml"))["project"]["nav"]
    named = re.findall(r"[\w/-]+\.md", str(nav))
    docs = {page.removeprefix("docs/") for page in sources() if page.startswith("docs/")}
    others = {page.removeprefix("files/") for page in named if page.startswith("files/")}
    assert "': '" not in str(nav)
    assert len(named) == len(set(named))
    assert {page for page in named if not page.startswith("files/")} == docs
    assert others <= set(sources())


def test_each_version_begins_with_what_people_must_do() -> None:
    """Who upgrades reads that first, and then perhaps no further."""
    versions = re.findall(r"^## \[.*\].*\n\n(.*)$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert set(versions) == {"### You must do"}
