"""Containers read the metadata of their devices, with the readers of Kubernetes' releases."""

from __future__ import annotations

import json

import pytest

from dev.cluster.binaries import metadata_reader
from dev.cluster.driver import DRIVER, Driver
from dev.cluster.processes import run
from tests.e2e.space import CLASS, Space, claim, claim_template, container, pod, request

pytestmark = pytest.mark.cluster

PLACE = "/var/run/kubernetes.io/dra-device-attributes"
READERS = ("0.36.3", "0.37.1")


def read(space: Space, path: str, pod: str = "user", container: str = "main") -> str:
    """A file as a container reads it."""
    return space.execute(pod, "cat", f"{PLACE}/{path}/{DRIVER}-metadata.json", container=container)


@pytest.mark.every_version
def test_containers_read_what_their_requests_got(driver: Driver, space: Space) -> None:
    """Of a claim with dots in its name and of a template; only the files of their own requests.

    A user without rights can read them.
    """
    choice = {"name": "any", "deviceClassName": CLASS}
    dotted = claim("a.b", {"name": "either", "firstAvailable": [choice]}, request("two", count=2))
    containers = [container("one", "dotted/either"), container("all", "dotted", "made")]
    user = pod("user", containers=containers)
    user["spec"]["securityContext"] = {"runAsUser": 1000}
    user["spec"]["resourceClaims"] = [
        {"name": "dotted", "resourceClaimName": "a.b"},
        {"name": "made", "resourceClaimTemplateName": "template"},
    ]
    space.apply(dotted, claim_template("template", claim("npu")), user)
    running = space.wait_phase("user")

    files = space.execute("user", "find", PLACE, "-type", "f", container="one").splitlines()
    assert files == [f"{PLACE}/resourceclaims/a.b/either/{DRIVER}-metadata.json"]
    published = driver.devices()
    (made,) = (
        each["resourceClaimName"]
        for each in running["status"]["resourceClaimStatuses"]
        if each["name"] == "made"
    )
    for name, path, wanted in (
        ("a.b", "resourceclaims/a.b/either", "either/any"),
        ("a.b", "resourceclaims/a.b/two", "two"),
        (made, "resourceclaimtemplates/made/npu", "npu"),
    ):
        text = read(space, path, container="all")
        for version in READERS:
            found = json.loads(run(metadata_reader(version), stdin=text))
            assert found["metadata"]["uid"] == space.uid("resourceclaim", name)
            (one,) = found["requests"]
            assert one["name"] == wanted
            devices = {device["name"]: device["attributes"] for device in one["devices"]}
            assert [*devices] == space.devices(name)[wanted]
            assert devices == {each: published[each]["attributes"] for each in devices}
