"""Each example gives what its first lines say; those about cards are in `test_modules`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import Driver
from dev.cluster.processes import ClusterError
from tests.e2e import nics
from tests.e2e.space import Space, bus_ids, is_running

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]


def attributes(driver: Driver, name: str) -> Object:
    """The attributes of a published device; each has one value, of whatever type."""
    found = driver.devices()[name]["attributes"]
    return {key: value for key, values in found.items() for value in values.values()}


def assert_runs(driver: Driver, space: Space, name: str, *, count: int = 1) -> list[str]:
    """The example's pod runs and sees just its claim's NPUs, which are returned."""
    space.apply_example(name)
    return assert_sees(driver, space, name, name, count=count)


def assert_sees(driver: Driver, space: Space, pod: str, claim: str, *, count: int = 1) -> list[str]:
    """A pod runs and sees just the NPUs of its claim, which are returned."""
    space.wait_phase(pod)
    names = space.allocated(claim)
    assert len(names) == count
    assert space.seen_npus(pod) == sorted(map(driver.bus, names))
    return names


def test_two_npus_of_one_ring(driver: Driver, space: Space) -> None:
    """Both have 32 GiB, and reach each other over HCCS."""
    pair = assert_runs(driver, space, "two-npus-one-ring", count=2)
    assert {attributes(driver, name)["topologyGroup"] for name in pair} == {"ring-0"}


def test_nearest_pair_without_cards_of_two(driver: Driver, space: Space) -> None:
    """The first choices do not exist on this board, so the pair is of one ring."""
    assert_runs(driver, space, "nearest-pair", count=2)
    assert list(space.devices("nearest-pair")) == ["pair/one-ring"]


def test_by_memory(driver: Driver, space: Space) -> None:
    """The NPU has as much as the claim wants."""
    (name,) = assert_runs(driver, space, "by-memory")
    assert driver.devices()[name]["capacity"]["memCapacity"]["value"] == "32Gi"


def test_class_of_a_family(driver: Driver, space: Space) -> None:
    """The class of the 910B gives one, by its name alone."""
    space.apply_example("device-classes")
    (name,) = assert_sees(driver, space, "of-a-family", "of-a-family")
    assert attributes(driver, name)["model"] == "Ascend910B"


def test_npu_and_nic_of_one_root(driver: Driver, space: Space) -> None:
    """The NPU is one of the two on the PCIe root of the only NIC."""
    (root, others) = "pci0000:80", {"npu-4", "npu-6"}
    assert {
        name
        for name in driver.devices()
        if attributes(driver, name)["resource.kubernetes.io/pcieRoot"] == root
    } == others
    with nics.running(driver.cluster, driver.cluster.node, {"nic-0": root}):
        space.apply_example("npu-and-nic")
        space.wait_phase("npu-and-nic")
        given = space.devices("npu-and-nic")
        assert given["nic"] == ["nic-0"]
        assert set(given["npu"]) <= others
        assert space.seen_npus("npu-and-nic") == [driver.bus(*given["npu"])]
        space.delete_pod("npu-and-nic")
        driver.wait_without_traces()


def test_two_containers(driver: Driver, space: Space) -> None:
    """Each sees the NPU of the request that it names, and no other."""
    space.apply_example("two-containers")
    space.wait_phase("two-containers")
    given = space.devices("two-containers")
    assert given.keys() == {"encode", "decode"}
    assert given["encode"] != given["decode"]
    for name, (device,) in given.items():
        assert space.seen_npus("two-containers", container=name) == [driver.bus(device)]


def test_configured(driver: Driver, space: Space) -> None:
    """It has the variable, and the path of the libraries."""
    assert_runs(driver, space, "configured")
    assert space.execute("configured", "printenv", "ASCEND_GLOBAL_LOG_LEVEL") == "1\n"
    path = space.execute("configured", "printenv", "LD_LIBRARY_PATH")
    assert path.startswith("/usr/local/Ascend/driver/lib64:")


# --- pods of controllers -------------------------------------------------------------------------


def wait_pods(space: Space, owner: str, is_wanted: Callable[[Object], bool]) -> list[str]:
    """Wait until there are two pods of *owner*, each as wanted; returns their names."""

    def look() -> list[str] | None:
        found = space.pods_of(owner)
        names = [str(pod["metadata"]["name"]) for pod in found if is_wanted(pod)]
        return names if len(names) == len(found) == 2 else None

    return space.wait(look, f"two pods of {owner}")


def see(space: Space, names: list[str]) -> set[str]:
    """The NPUs of some pods, each of which has one."""
    seen = [bus for name in names for bus in space.seen_npus(name)]
    assert len(seen) == len(names)
    return set(seen)


def test_deployment(driver: Driver, space: Space) -> None:
    """Each replica has an NPU of its own, and an update needs no third one."""
    space.apply_example("deployment")
    before = wait_pods(space, "npu-deployment", is_running)
    assert len(see(space, before)) == 2

    change = {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
    space.patch("deployment", "npu-deployment", change=change)

    def is_new(pod: Object) -> bool:
        return is_running(pod) and pod["metadata"]["labels"].get("version") == "2"

    after = wait_pods(space, "npu-deployment", is_new)
    assert len(see(space, after)) == 2
    space.delete("deployment", "npu-deployment", foreground=True)
    driver.wait_without_traces()


def wait_names(space: Space, names: list[str]) -> None:
    """Wait until the first worker finds the address of each by its name."""

    def found(name: str) -> None:
        said = space.execute(names[0], "getent", "ahostsv4", f"{name}.npu-statefulset")
        address = (space.get("pod", name) or {})["status"]["podIP"]
        if said.split()[0] != address:  # the former worker's
            raise ClusterError(f"{name} is {said}, not {address}")

    for name in names:
        space.cluster.wait_ok(partial(found, name), f"{name} in the DNS")


def test_statefulset(driver: Driver, space: Space) -> None:
    """Workers keep their names; a recreated one has one NPU, perhaps a different one."""
    space.apply_example("statefulset")
    names = wait_pods(space, "npu-statefulset", is_running)
    assert names == ["npu-statefulset-0", "npu-statefulset-1"]
    assert len(see(space, names)) == 2
    wait_names(space, names)

    before = space.uid("pod", names[0])
    space.begin_delete("pod", names[0])
    space.wait(
        lambda: (space.get("pod", names[0]) or {}).get("metadata", {}).get("uid", before) != before,
        "a new worker",
    )
    assert wait_pods(space, "npu-statefulset", is_running) == names
    assert len(see(space, names)) == 2
    wait_names(space, names)
    space.delete("statefulset", "npu-statefulset", foreground=True)
    driver.wait_without_traces()


def test_job(driver: Driver, space: Space) -> None:
    """Each pod had an NPU and released it when it ended, although the pod still exists."""
    space.apply_example("job")
    names = wait_pods(space, "npu-job", lambda pod: pod["status"].get("phase") == "Succeeded")
    assert [len(bus_ids(space.log(name, "main"))) for name in names] == [1, 1]
    driver.wait_without_traces()
    space.wait(
        lambda: (
            not any(
                claim.get("status", {}).get("allocation")
                for claim in space.cluster.objects("resourceclaims", namespace=space.name)
            )
        ),
        "no claim with an NPU",
    )
    assert len(space.pods_of("npu-job")) == 2
    space.delete("job", "npu-job", foreground=True)
