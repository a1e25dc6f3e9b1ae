"""The driver on a real node: one deployment for the session, one namespace for each test."""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.cluster.api import ApiServer
from dev.cluster.cluster import Cluster
from dev.cluster.deploy import deploy
from dev.cluster.driver import Driver
from tests.e2e.faults import Faults
from tests.e2e.space import Space

pytest_plugins = ["dev.cluster.plugin"]

HERE = Path(__file__).parent
NOTES = pytest.StashKey[list[str]]()
LOG_TAIL = 60
"""Lines of the driver's log to show with a failure."""

_numbers = itertools.count(1)


MARKERS = ("when_all_have_run: judges the whole run; left out of sessions with fewer tests",)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options for the length of some tests, and for the rights that several sessions used."""
    parser.addoption(
        "--idle-seconds",
        type=float,
        default=60,
        help="how long the driver is watched doing nothing (default 60)",
    )
    parser.addoption(
        "--churn-seconds",
        type=float,
        default=15,
        help="how long pods of claims and of a device plugin churn (default 15)",
    )
    parser.addoption(
        "--rights",
        type=Path,
        metavar="FOLDER",
        help="where sessions that are judged together leave which rights the driver used",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the notes of tests, and register the markers."""
    config.stash[NOTES] = []
    for line in MARKERS:
        config.addinivalue_line("markers", line)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Judge the driver's rights last, by what it did in all the other tests that are here."""
    items.sort(key=lambda item: item.path.name == "test_rights.py")
    judges = [item for item in items if item.get_closest_marker("when_all_have_run")]
    if judges != items and not _is_whole(config, items):
        config.hook.pytest_deselected(items=judges)
        items[:] = [item for item in items if item not in judges]


def _is_whole(config: pytest.Config, items: list[pytest.Item]) -> bool:
    missing = set(HERE.glob("test_*.py")) - {item.path for item in items}
    return not (config.option.keyword or config.option.markexpr or missing)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how long deploying took, and what tests measured."""
    if notes := terminalreporter.config.stash[NOTES]:
        terminalreporter.section("measured")
        for note in notes:
            terminalreporter.write_line(note)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the driver's log with a failed test."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        for node in cluster.nodes:
            lines = Driver(cluster=cluster, node=node).log().splitlines()[-LOG_TAIL:]
            report.sections.append((f"driver's log on {node.name}", "\n".join(lines)))
        report.sections.append(("logs of the nodes", str(cluster.logs)))
    return report


@pytest.fixture(scope="session")
def notes(pytestconfig: pytest.Config) -> list[str]:
    """Lines for the end of the session."""
    return pytestconfig.stash[NOTES]


@pytest.fixture(scope="session")
def rights(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the rights that the driver has used."""
    folder: Path | None = pytestconfig.getoption("--rights")
    return folder or tmp_path_factory.mktemp("rights")


@pytest.fixture(scope="session")
def driver(cluster: Cluster, notes: list[str]) -> Driver:
    """The driver, built from this tree, running on the cluster's first node with eight 910B4."""

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            notes.append(f"{time.monotonic() - began:6.1f} s  deploying: {name}")

    return deploy(cluster, phase)


@pytest.fixture
def space(driver: Driver) -> Iterator[Space]:
    """A namespace for one test.

    Afterwards nothing of it is left, on the node neither; the DeviceClasses of its examples go too.
    """
    cluster, before = driver.cluster, set(class_names(driver.cluster))
    fresh = Space.create(cluster, f"e2e-{next(_numbers)}")
    yield fresh
    fresh.remove()
    driver.wait_without_traces()
    cluster.remove("deviceclass", *sorted(set(class_names(cluster)) - before))


def class_names(cluster: Cluster) -> list[str]:
    """The names of the DeviceClasses."""
    classes = cluster.objects("deviceclasses", namespace=None)
    return [each["metadata"]["name"] for each in classes]


@pytest.fixture
def faults(driver: Driver) -> Iterator[Faults]:
    """Faults for one test; the NPUs are well before and after."""
    before = driver.devices()
    with driver.board() as board:
        faults = Faults(driver=driver, board=board)
        yield faults
        faults.end_all()
        driver.cluster.wait(lambda: driver.devices() == before, "all NPUs as they were")


@pytest.fixture
def agent(driver: Driver) -> Iterator[ApiServer]:
    """An API client with the token of the driver's pod."""
    with driver.asked_with_token() as server:
        yield server
