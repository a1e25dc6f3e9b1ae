"""The driver's rights are those that it uses: read from what it did in the session's other tests.

`conftest.py` puts this file last.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.audit import Request
from tests.e2e.driver import ACCOUNT, NAME, Driver

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

AGENT = "trio-npu-dra/"
"""How the driver calls itself to the server; the tests use its account too, with kubectl."""

Right = tuple[str, str, str]
"""Verb, API group, resource with its subresource: as RBAC writes them."""


def right(request: Request) -> Right:
    """The right that a request took."""
    resource = "/".join(filter(None, (request.resource, request.subresource)))
    return (request.verb, request.group, resource or request.uri)


def granted(driver: Driver) -> set[Right]:
    """The rights of the driver's ClusterRole."""
    role = driver.cluster.get("clusterrole", NAME)
    assert role is not None
    return {
        (verb, group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def is_whole(session: pytest.Session) -> bool:
    """Whether every file's tests ran, and passed: only then is what was not used not needed."""
    files = {item.path for item in session.items}
    chosen = session.config.option.keyword or session.config.option.markexpr
    missing = set(Path(__file__).parent.glob("test_*.py")) - files
    return not (chosen or missing or session.testsfailed)


def test_rights_are_those_that_are_used(
    driver: Driver, notes: list[str], request: pytest.FixtureRequest
) -> None:
    """The driver was refused nothing and used no other right; none of its rights is idle."""
    asked = [
        each
        for each in driver.cluster.audit()
        if each.user == ACCOUNT and each.agent.startswith(AGENT)
    ]
    used = Counter(right(each) for each in asked)
    for (verb, group, resource), count in sorted(used.items()):
        notes.append(f"used right {verb:8} {group or 'core':18} {resource:28} {count:6} times")

    assert [each for each in asked if each.code == 403] == []
    assert used.keys() <= granted(driver)
    if is_whole(request.session):
        assert used.keys() == granted(driver)
