"""NPUs that several pods use at once, on a node of 910B4 and on one of A3 modules.

The simulated library has the kernel's rule: without its share flag, a chip is for the first
container that uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from dev.cluster.api import Object
from dev.cluster.cluster import NodeAccess
from dev.cluster.driver import DRIVER, NPUS, Driver
from dev.cluster.processes import ClusterError
from tests.e2e.boards import laid_out
from tests.e2e.faults import number
from tests.e2e.space import USES, Space, claim, container, placed, pod, request
from trio_npu_dra.lab.simulator import load_profile

pytestmark = pytest.mark.cluster

A3 = load_profile("a3-16")
OWN = f'device.attributes["{DRIVER}"]'
THIRD = f"{OWN}.physicalId == 3"
"""The selector of npu-3."""
SHARES = 8
"""How many an NPU has by default."""


@pytest.fixture(scope="module")
def driver(driver: Driver) -> Iterator[Driver]:
    """The driver, which lets claims share NPUs until the end of this file."""
    driver.set_environment("NPU_DRA_SHARING=shares")
    driver.cluster.wait(lambda: is_divided(driver), "NPUs with shares")
    yield driver
    driver.set_environment("NPU_DRA_SHARING-")
    driver.cluster.wait(lambda: not is_divided(driver), "NPUs without shares")


@pytest.fixture(scope="module")
def modules(driver: Driver, second_node: NodeAccess) -> Iterator[Driver]:
    """The same driver on the second node, with eight modules."""
    with laid_out(driver, second_node, A3) as modules:
        modules.cluster.wait(lambda: is_divided(modules), "modules with shares")
        yield modules


def is_divided(driver: Driver) -> bool:
    """Whether there are devices, and claims can share each."""
    devices = driver.devices().values()
    return bool(devices) and all(one.get("allowMultipleAllocations") for one in devices)


def share_of(name: str, device: str, shares: int | None = None) -> Object:
    """A claim for a share of a device, or for several."""
    wanted = request(cel=device)
    if shares is not None:
        wanted["exactly"]["capacity"] = {"requests": {"shares": str(shares)}}
    return claim(name, wanted)


def user(name: str, driver: Driver, *claims: str) -> Object:
    """A pod on the driver's node whose container goes on using those claims' NPUs."""
    made = pod(name, *claims, containers=[container("main", *claims, command=USES)])
    return placed(made, driver.node)


def wait_used(space: Space, *pods: str) -> None:
    """Wait until each pod's container uses its NPUs."""
    for name in pods:
        space.wait_phase(name)

        def seen(name: str = name) -> bool:
            with suppress(ClusterError):  # there is no file yet
                return "npu-smi" in space.execute(name, "cat", "/tmp/seen")
            return False

        space.wait(seen, f"pod {name} using its NPUs")


def wait_unshared(driver: Driver, count: int = NPUS) -> None:
    """Wait until none of them is shared any more."""
    driver.cluster.wait(lambda: not driver.shared_chips(count), "no chip shared")


def test_example_of_a_shared_claim(driver: Driver, space: Space) -> None:
    """Both pods have its NPU, which is shared until the last has ended."""
    space.apply_example("shared-claim")
    pods = ("shared-claim-one", "shared-claim-two")
    for name in pods:
        space.wait_phase(name)
    (device,) = space.allocated("shared-claim")
    for name in pods:
        assert space.seen_npus(name) == [driver.bus(device)]
        assert driver.shared_chips() == {number(device)}
        space.delete_pod(name)
    driver.wait_without_traces()
    wait_unshared(driver)


def test_an_npu_that_is_not_shared_is_for_the_first_container(driver: Driver, space: Space) -> None:
    """A claim from before sharing holds one, which has no shares until it is free again."""
    driver.set_environment("NPU_DRA_SHARING-")
    try:
        containers = [container(name, "npu", command=USES) for name in ("one", "two")]
        space.apply(claim("npu"), placed(pod("user", "npu", containers=containers), driver.node))
        space.wait_phase("user")
        space.wait(lambda: len(refused(space, "user")) == 1, "one of two containers refused")
        assert driver.shared_chips() == set()
    finally:
        driver.set_environment("NPU_DRA_SHARING=shares")
    (device,) = space.allocated("npu")
    others = {name: one for name, one in driver.devices().items() if name != device}
    assert "allowMultipleAllocations" not in driver.devices()[device]
    assert all(one["allowMultipleAllocations"] for one in others.values())
    space.delete_pod("user")
    driver.cluster.wait(lambda: is_divided(driver), "shares of the NPU that is free again")


def refused(space: Space, name: str) -> list[str]:
    """The containers of a pod to which the kernel's rule has refused their NPU."""
    said = "dcmi module initialize failed. ret is -8020"
    found = []
    for each in ("one", "two"):
        with suppress(ClusterError):  # there is no file yet
            if said in space.execute(name, "cat", "/tmp/seen", container=each):
                found.append(each)
    return found


def test_example_of_a_share(driver: Driver, space: Space) -> None:
    """Two shares of an NPU, of which six are left."""
    space.apply_example("share")
    space.wait_phase("share")
    (taken,) = [
        result
        for found in driver.cluster.objects("resourceclaims", namespace=space.name)
        for result in found["status"]["allocation"]["devices"]["results"]
    ]
    assert taken["consumedCapacity"]["shares"] == "2"
    assert taken["consumedCapacity"]["memCapacity"] == "8Gi"
    assert driver.shared_chips() == {number(taken["device"])}


def test_three_claims_hold_shares_of_one_npu(driver: Driver, space: Space) -> None:
    """All use it at once; a claim for all shares waits for the last of them; no slice changes."""
    names = ("one", "two", "three")
    before = driver.versions()
    for name in names:
        space.apply(share_of(name, THIRD), user(name, driver, name))
    wait_used(space, *names)
    assert [space.allocated(name) for name in names] == [["npu-3"]] * 3
    assert all(space.seen_npus(name) == [driver.bus("npu-3")] for name in names)
    assert driver.shared_chips() == {3}

    space.apply(share_of("all", THIRD, SHARES), user("all", driver, "all"))
    space.assert_waits("all")
    space.delete_pod("one")
    space.delete_pod("two")
    assert driver.shared_chips() == {3}
    wait_used(space, "three")
    space.delete_pod("three")
    for name in names:
        space.delete("resourceclaim", name)
    wait_used(space, "all")
    space.delete_pod("all")
    driver.wait_without_traces()
    wait_unshared(driver)
    assert driver.versions() == before


def says_each_share(space: Space, name: str) -> bool:
    """Whether the status of a claim says of each of its shares what that is."""
    status = (space.get("resourceclaim", name) or {})["status"]
    given, said = (
        sorted(one["shareID"] for one in devices)
        for devices in (status["allocation"]["devices"]["results"], status.get("devices", []))
    )
    return given == said


def test_one_claim_has_several_shares(driver: Driver, space: Space) -> None:
    """They are of one NPU: its container gets that once, and the claim's status has each share."""
    wanted = [request(name, cel=THIRD) for name in ("a", "b")]
    space.apply(claim("both", *wanted), user("user", driver, "both"))
    wait_used(space, "user")
    assert space.allocated("both") == ["npu-3", "npu-3"]
    space.wait(lambda: says_each_share(space, "both"), "a status of each share")
    assert space.seen_npus("user") == [driver.bus("npu-3")]
    space.delete_pod("user")
    driver.wait_without_traces()
    wait_unshared(driver)


def test_a_module_is_shared_with_both_dies(modules: Driver, space: Space) -> None:
    """Both dies have the share flag, and neither has it at the end."""
    device = f'{OWN}.type == "module" && {OWN}.cardId == 2'
    for name in ("one", "two"):
        space.apply(share_of(name, device), user(name, modules, name))
    wait_used(space, "one", "two")
    dies = {die.physical_id for die in A3.devices if die.card_id == 2}
    assert modules.shared_chips(len(A3.devices)) == dies
    for name in ("one", "two"):
        space.delete_pod(name)
    modules.wait_without_traces()
    wait_unshared(modules, len(A3.devices))
