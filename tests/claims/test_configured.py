"""Containers get what configs of claims and classes say."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from dev.config.cases import GOOD, named
from tests.claims.node import (
    DRIVER,
    POOL,
    NodeOnDisk,
    claim,
    config,
    ref,
    result,
)
from tests.claims.restarted import prepare, start
from tests.holds.entries import held
from trio_npu_dra.agent.claims.allocation import allocation_of
from trio_npu_dra.agent.config.model import DEFAULT_CONFIG, MAX_OF_CLAIM, EffectiveConfig
from trio_npu_dra.agent.handout.cdi import CdiFolder, Libraries
from trio_npu_dra.agent.handout.library_hook import LibraryHook
from trio_npu_dra.kit.api.objects import AllocationConfiguration, ResourceClaim
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import InvalidOpaqueConfig


def of_claim(*requests: str, **fields: Any) -> AllocationConfiguration:
    """A config of the claim."""
    return config("FromClaim", GOOD | fields, *requests)


def of_class(*requests: str, **fields: Any) -> AllocationConfiguration:
    """A config of a class."""
    return config("FromClass", GOOD | fields, *requests)


def env(**variables: str) -> list[Any]:
    """Variables of a config."""
    return [named(name, value) for name, value in variables.items()]


def planned(claimed: ResourceClaim) -> dict[str, EffectiveConfig | None]:
    """The effective config of each device."""
    given = allocation_of(claimed, ref("a"), driver_name=DRIVER, pool_name=POOL)
    return {each.device: each.config for each in given}


# --- which config counts -------------------------------------------------------------------------


def test_a_claims_config_wins_over_its_class() -> None:
    """Wherever it stands; what it does not say is the class's."""
    configs = [
        of_claim(env=env(A="claim"), driverMounts=True),
        of_class(env=env(A="class", B="class"), driverMounts=False, containerLibraries="none"),
    ]
    assert planned(claim("a", result("npu-0"), config=configs)) == {
        "npu-0": EffectiveConfig(container_libraries="none", env=(("A", "claim"), ("B", "class")))
    }


def test_of_two_configs_in_one_place_the_later_counts() -> None:
    """In order of the allocation, which the scheduler writes in order of class and claim."""
    configs = [of_claim(env=env(A="1")), of_claim("npu", env=env(A="2")), of_claim(env=env(B="3"))]
    assert planned(claim("a", result("npu-0"), config=configs)) == {
        "npu-0": EffectiveConfig(env=(("A", "2"), ("B", "3")))
    }


def test_a_config_is_for_the_requests_that_it_names() -> None:
    """All if none is named; a request with all its subrequests, or one of them."""
    configs = [
        of_claim(env=env(ALL="1")),
        of_claim("one", env=env(ONE="1")),
        of_claim("one/x", "two/x", env=env(X="1")),
        of_claim("one/y", "x", env=env(Y="1")),
    ]
    results = [result("npu-0", "one/x"), result("npu-1", "two/x"), result("npu-2", "two")]
    assert planned(claim("a", *results, config=configs)) == {
        "npu-0": EffectiveConfig(env=(("ALL", "1"), ("ONE", "1"), ("X", "1"))),
        "npu-1": EffectiveConfig(env=(("ALL", "1"), ("X", "1"))),
        "npu-2": EffectiveConfig(env=(("ALL", "1"),)),
    }


def test_a_device_of_several_requests_has_the_configs_of_all() -> None:
    """As admin access can have it: its containers cannot be told apart."""
    results = [result("npu-0", "a", admin_access=True), result("npu-0", "b")]
    configs = [of_claim("b", driverMounts=False), of_claim("a", env=env(A="1"))]
    given = allocation_of(
        claim("a", *results, config=configs), ref("a"), driver_name=DRIVER, pool_name=POOL
    )
    assert [each.config for each in given] == [
        EffectiveConfig(driver_mounts=False, env=(("A", "1"),))
    ] * 2


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ({"env": env(A="1")}, {"env": env(A="2")}, 'env A to "1" and "2"'),
        ({"visibleDevices": "physical"}, {}, 'visibleDevices to "physical" and "void"'),
    ],
)
def test_two_values_for_one_container_refuse_the_claim(
    left: dict[str, Any], right: dict[str, Any], words: str
) -> None:
    """A container of both NPUs would get either; a config for both requests decides."""
    results = [result("npu-0", "left"), result("npu-1", "right/x")]
    configs = [of_class("left", **left), of_claim("right", **right)]
    with pytest.raises(InvalidOpaqueConfig) as caught:
        planned(claim("a", *results, config=configs))
    assert str(caught.value) == (
        f"the configs of requests left and right set {words}, and a container that "
        "uses both can have one only: write one value for both, or make two claims"
    )
    configs.append(of_claim(**left))
    assert len(set(planned(claim("a", *results, config=configs)).values())) == 1


async def test_variables_that_fit_into_a_record_are_taken(node: NodeOnDisk) -> None:
    """The largest ones that may be, in the longest form that JSON has; more are refused."""
    results = [result(f"npu-{number}", f"r{number}") for number in range(4)]
    own = [of_claim(f"r{number}", env=env(**{f"OWN{number}": ""})) for number in range(4)]
    many = [of_claim(env=env(**{f"V{n:02}": "\x01" * 1013})) for n in range(16)]
    assert len("V00" + "\x01" * 1013) * 16 * 4 + len("OWN0") * 4 <= MAX_OF_CLAIM
    node.source.store(claim("a", *results, config=[*own, *many]))
    assert await prepare(node, "a") == {"a": ""}
    assert await prepare(node, "a") == {"a": ""}
    assert 512 << 10 < (node.records_folder / "uid-a.json").stat().st_size < storage.SIZE_LIMIT

    node.source.store(claim("b", *results, config=[*many, of_claim(env=env(A="x" * 1024))]))
    assert await prepare(node, "b") == {
        "b": "the variables of env for all devices of the claim have 69124 bytes together: "
        "write at most 65536"
    }


# --- what it comes to in a CDI file --------------------------------------------------------------


@pytest.fixture
def cdi(node: NodeOnDisk) -> CdiFolder:
    """The CDI files of a node with a hook, and with something that the operator adds."""
    program = node.root / "program"
    program.write_bytes(b"")
    (node.root / "host/data").mkdir()
    return replace(
        node.cdi(),
        host=replace(node.host, extra_mounts=(("/data", "/data"),)),
        libraries=Libraries(path="/lib", hook=LibraryHook(node.cdi_root, DRIVER, program)),
    )


def edits(cdi: CdiFolder, *configs: EffectiveConfig) -> list[dict[str, set[str]]]:
    """The edits for the claim and for each NPU, without device nodes."""
    devices = [
        held(f"npu-{number}", number)._replace(config=one) for number, one in enumerate(configs)
    ]
    spec = cdi.render("uid-a", devices)
    parts = [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]
    return [
        {
            "env": set(part.get("env", ())) - {"ASCEND_VISIBLE_DEVICES=void"},
            "mounts": {mount["containerPath"] for mount in part.get("mounts", ())},
            "hooks": {hook["hookName"] for hook in part.get("hooks", ())},
        }
        for part in parts
    ]


NOTHING: dict[str, set[str]] = {"env": set(), "mounts": set(), "hooks": set()}
FILES = {"/usr/local/Ascend/driver/lib64"}
ADDED = {"/data"}


def test_edits_of_all_devices_stand_once(cdi: CdiFolder) -> None:
    """A container with several NPUs runs the hook once."""
    usual = {"env": set(), "mounts": FILES | ADDED, "hooks": {"createContainer"}}
    assert edits(cdi, DEFAULT_CONFIG, DEFAULT_CONFIG) == [usual, NOTHING, NOTHING]
    same = EffectiveConfig(env=(("A", "1"),), driver_mounts=False, container_libraries="none")
    assert edits(cdi, same, same) == [NOTHING | {"env": {"A=1"}, "mounts": ADDED}, NOTHING, NOTHING]


def test_edits_that_differ_stand_with_each_device(cdi: CdiFolder) -> None:
    """So a container gets it only with that NPU."""
    other = EffectiveConfig(env=(("A", "1"), ("B", "x=y")), driver_mounts=False)
    assert edits(cdi, DEFAULT_CONFIG, other) == [
        NOTHING | {"mounts": ADDED, "hooks": {"createContainer"}},
        NOTHING | {"mounts": FILES},
        NOTHING | {"env": {"A=1", "B=x=y"}},
    ]


@pytest.mark.parametrize("usual", ["ldcache", "env", "none"])
def test_a_config_says_how_libraries_are_found(cdi: CdiFolder, usual: Any) -> None:
    """Whatever the driver's flag says; without a hook there is only LD_LIBRARY_PATH."""
    ways = {
        "ldcache": NOTHING | {"hooks": {"createContainer"}},
        "env": NOTHING | {"env": {"LD_LIBRARY_PATH=/lib"}},
        "none": NOTHING,
    }
    cdi = replace(cdi, libraries=replace(cdi.libraries, usual=usual))
    all_ways: list[Any] = [None, "ldcache", "env", "none"]
    configs = [EffectiveConfig(container_libraries=way, driver_mounts=False) for way in all_ways]
    _, *devices = edits(cdi, *configs)
    assert devices == [ways[usual], *ways.values()]

    cdi = replace(cdi, libraries=replace(cdi.libraries, hook=None))
    _, _, fallback, *_ = edits(cdi, *configs)
    assert fallback == ways["env"]


# --- prepare, and what comes after ---------------------------------------------------------------


def store(node: NodeOnDisk, **fields: Any) -> None:
    """Have claim `a` with this config."""
    node.source.store(claim("a", result("npu-2"), config=[of_claim(**fields)]))


def given_env(node: NodeOnDisk) -> list[str]:
    """The variables in the claim's CDI file, but for ours."""
    spec = json.loads(node.cdi_path("uid-a").read_bytes())
    return [one for one in spec["containerEdits"]["env"] if not one.startswith("ASCEND_VISIBLE")]


async def test_a_prepared_claim_keeps_its_config(
    node: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """When it is prepared again, and when a new instance renders its file by the record."""
    del autojump_clock
    store(node, env=env(A="1"), containerLibraries="none")
    assert await prepare(node, "a") == {"a": ""}
    assert given_env(node) == ["A=1"]
    record = (node.records_folder / "uid-a.json").stat().st_ino

    assert await prepare(node, "a") == {"a": ""}
    node.cdi_path("uid-a").unlink()
    await start(node, nursery)

    assert given_env(node) == ["A=1"]
    assert (node.records_folder / "uid-a.json").stat().st_ino == record  # not written again


async def test_a_reallocated_claim_has_its_new_config(node: NodeOnDisk) -> None:
    """The kubelet may have forgotten it; class and scheduler may have changed the config since."""
    store(node, env=env(A="1"))
    assert await prepare(node, "a") == {"a": ""}
    store(node, env=env(A="2"), containerLibraries="none")

    assert await prepare(node, "a") == {"a": ""}

    assert given_env(node) == ["A=2"]
    assert node.record("uid-a")["allocation"][0]["config"]["env"] == {"A": "2"}


async def test_a_claim_without_config_has_none_in_its_record(node: NodeOnDisk) -> None:
    """Nor does one whose config says what is so anyway: older versions know both."""
    for fields in ({}, {"driverMounts": True, "env": []}):
        store(node, **fields)
        assert await prepare(node, "a") == {"a": ""}
        assert "config" not in node.record("uid-a")["allocation"][0]


@pytest.mark.parametrize(("names", "is_said"), [("a", False), ("ab", True)])
async def test_numbers_that_lack_those_of_other_claims_are_said(
    node: NodeOnDisk, caplog: pytest.LogCaptureFixture, names: str, *, is_said: bool
) -> None:
    """A container with both claims of a pod reads the NPUs of one of them."""
    store(node, visibleDevices="physical")
    node.source.store(claim("b", result("npu-1")))
    assert await prepare(node, *names) == dict.fromkeys(names, "")
    said = [vars(line)["claims"] for line in caplog.records if "visibleDevices" in line.message]
    assert said == ([["default/a", "default/b"]] if is_said else [])
