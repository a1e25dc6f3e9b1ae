"""The driver's rights are those that it uses: read from what it did in all the other tests.

`conftest.py` puts this file last.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from pathlib import Path

import pytest
import yaml

from dev.cluster.audit import Request
from dev.cluster.deploy import ROOT
from dev.cluster.driver import ACCOUNT, Driver
from tests.e2e.test_claim_status import FORBIDDEN

AGENT = "trio-npu-dra/"
"""How the driver calls itself to the server; the tests use its account too, with kubectl."""

Right = tuple[str, str, str]
"""Verb, API group, resource with its subresource: as RBAC writes them."""


def right(request: Request) -> Right:
    """The right that a request took."""
    resource = "/".join(filter(None, (request.resource, request.subresource)))
    return (request.verb, request.group, resource or request.uri)


def granted() -> set[Right]:
    """The rights of the driver's roles, which every test applies as they are.

    Without those that no request names: the API server asks for them beside another one.
    """
    roles = [
        about
        for folder in ("base", "node-labels")
        for file in (ROOT / "k8s" / folder).glob("*.yaml")
        for about in yaml.safe_load_all(file.read_text())
        if about["kind"] in {"ClusterRole", "Role"}
    ]
    return {
        (verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if ":" not in verb
    }


@pytest.mark.cluster
@pytest.mark.every_version
def test_driver_is_refused_nothing_and_uses_no_other_right(
    driver: Driver, notes: list[str], rights: Path
) -> None:
    """The API server has refused none of its requests of this session for want of rights.

    But for claims for which a test takes a right away, and for what the roles grant all the same:
    an API server that starts refuses requests until it has read the roles. The used rights are
    left for the test below.
    """
    asked = [
        each
        for each in driver.cluster.audit()
        if each.user == ACCOUNT and each.agent.startswith(AGENT)
    ]
    used = Counter(right(each) for each in asked)
    for (verb, group, resource), count in sorted(used.items()):
        notes.append(f"used right {verb:8} {group or 'core':18} {resource:28} {count:6} times")
    (rights / secrets.token_hex(8)).write_text(json.dumps(sorted(used)))

    refused = [
        each
        for each in asked
        if each.code == 403 and (each.is_authorized or right(each) not in granted())
    ]
    assert [each for each in refused if not each.name.startswith(FORBIDDEN)] == []
    assert used.keys() <= granted()


@pytest.mark.when_all_have_run
def test_no_right_is_idle(rights: Path) -> None:
    """A right that no test on a version used, in one session or several, is not needed."""
    used = {tuple(each) for session in rights.iterdir() for each in json.loads(session.read_text())}
    assert used == granted()
