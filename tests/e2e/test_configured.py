"""A container gets what the configs of its requests say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.api import Object
from tests.cluster.cluster import Cluster
from tests.config_cases import GOOD, named
from tests.e2e.driver import DRIVER
from tests.e2e.space import Space, claim, container, pod, request
from tests.e2e.test_libraries import DRIVER as LIBRARIES
from tests.e2e.test_libraries import loads

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

CLASS_WITH_CONFIG = "configured"


def config(*requests: str, **fields: object) -> Object:
    """A config of a claim for some requests, or of a class."""
    opaque = {"driver": DRIVER, "parameters": GOOD | fields}
    return {"requests": list(requests), "opaque": opaque} if requests else {"opaque": opaque}


@pytest.fixture
def of_class(cluster: Cluster) -> Iterator[str]:
    """A DeviceClass that sets two variables and leaves libraries to the image."""
    env = [named("A", "class"), named("B", "class")]
    about = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": CLASS_WITH_CONFIG},
        "spec": {
            "selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}],
            "config": [config(env=env, containerLibraries="none")],
        },
    }
    cluster.api.apply([about])
    yield CLASS_WITH_CONFIG
    cluster.remove("deviceclass", CLASS_WITH_CONFIG)


def seen(space: Space, name: str) -> tuple[str, bool, bool]:
    """What a container has: its LD_LIBRARY_PATH, whether libdcmi.so is there, and found."""
    path = space.execute("user", "sh", "-c", "echo $LD_LIBRARY_PATH", container=name).strip()
    look = f"test -e {LIBRARIES}/libdcmi.so && echo yes || true"
    is_there = space.execute("user", "sh", "-c", look, container=name) == "yes\n"
    return path, is_there, bool(loads(space, "libdcmi.so", container=name))


def test_each_container_gets_what_its_request_configures(space: Space) -> None:
    """Each way for libraries, and no mounts; no container has what another one's NPU brings."""
    requests = ("ldcache", "env", "none", "bare")
    wanted = claim("npu", *map(request, requests))
    wanted["spec"]["devices"]["config"] = [
        *(config(name, containerLibraries=name) for name in ("ldcache", "env", "none")),
        config("bare", driverMounts=False, containerLibraries="none"),
        config("none", "env", env=[named("FOO", "a=b c")]),
    ]
    containers = [container(name, f"npu/{name}") for name in requests]
    space.apply(wanted, pod("user", "npu", containers=containers))
    space.wait_phase("user")

    found = {name: seen(space, name) for name in requests}
    assert found.pop("env")[0].startswith(f"{LIBRARIES}:")
    assert found == {
        "ldcache": ("", True, True),
        "none": ("", True, False),
        "bare": ("", False, False),
    }
    for name in requests:
        foo = space.execute("user", "sh", "-c", "echo $FOO", container=name)
        assert foo == ("a=b c\n" if name in {"none", "env"} else "\n")
        assert len(space.davinci_nodes("user", container=name)) == 1


def test_a_claims_config_wins_over_its_class(space: Space, of_class: str) -> None:
    """Variable by variable and field by field; requests of another class have only the claim's."""
    both = claim("npu", request("configured"), request("plain"))
    first, _ = both["spec"]["devices"]["requests"]
    first["exactly"]["deviceClassName"] = of_class
    both["spec"]["devices"]["config"] = [config(env=[named("A", "claim")])]
    containers = [container(name, f"npu/{name}") for name in ("configured", "plain")]
    space.apply(both, pod("user", "npu", containers=containers))
    space.wait_phase("user")

    words = "echo $A $B"
    assert space.execute("user", "sh", "-c", words, container="configured") == "claim class\n"
    assert space.execute("user", "sh", "-c", words, container="plain") == "claim\n"
    assert not loads(space, "libdcmi.so", container="configured")
    assert loads(space, "libdcmi.so", container="plain")


def test_a_variable_with_two_values_is_refused(space: Space) -> None:
    """The events of the pod name both requests."""
    wanted = claim("npu", request("left"), request("right"))
    wanted["spec"]["devices"]["config"] = [
        config("left", env=[named("A", "1")]),
        config("right", env=[named("A", "2")]),
    ]
    space.apply(wanted, pod("user", "npu"))
    event = space.wait_event("user", "FailedPrepareDynamicResources", "left and right")
    assert 'set env A to "1" and "2"' in event


def test_the_example(space: Space) -> None:
    """It has the variable, and the path of the libraries."""
    space.apply_example("configured")
    space.wait_phase("configured")
    assert space.execute("configured", "printenv", "ASCEND_GLOBAL_LOG_LEVEL") == "1\n"
    assert LIBRARIES in space.execute("configured", "printenv", "LD_LIBRARY_PATH")
    assert len(space.seen_npus("configured")) == 1
