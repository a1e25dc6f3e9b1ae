"""A3 modules on a node of their own: two dies that go into containers together, or one by one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from dev.cluster.api import Object
from dev.cluster.cluster import NodeAccess
from dev.cluster.driver import BOARD, DRIVER, Driver
from tests.e2e.boards import Given, assert_has, begin, laid_out, wait_published
from tests.e2e.space import Space, claim, container, placed, pod, request
from trio_npu_dra.lab.simulator import BoardControl, load_profile

pytestmark = pytest.mark.cluster

A3 = load_profile("a3-16")
CARDS = {
    card: [die.physical_id for die in A3.devices if die.card_id == card]
    for card in {die.card_id for die in A3.devices}
}
"""The physical ids of each card's dies."""
MODULES = {f"module-{card}" for card in CARDS}
DIES = {f"npu-{die.physical_id}" for die in A3.devices}

OWN = f'device.attributes["{DRIVER}"]'


# --- the board -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def driver(driver: Driver, second_node: NodeAccess) -> Iterator[Driver]:
    """The driver on the second node, with eight modules; both are removed afterwards."""
    with laid_out(driver, second_node, A3) as there:
        yield there


@pytest.fixture
def board(driver: Driver) -> Iterator[BoardControl]:
    """The simulated board of the second node."""
    with driver.board() as control:
        yield control


@pytest.fixture
def union(driver: Driver, board: BoardControl) -> None:
    """Dies are handed out by the module."""
    board.set_multi_die_policy(independent=False)
    wait_published(driver, MODULES)


@pytest.fixture
def independent(driver: Driver, board: BoardControl) -> None:
    """Dies are handed out one by one."""
    board.set_multi_die_policy(independent=True)
    wait_published(driver, DIES)


def dies_of(module: str) -> list[int]:
    """The physical ids of a module's dies."""
    return CARDS[int(module.removeprefix("module-"))]


def names_of(dies: Sequence[int]) -> set[str]:
    """What dies are called as devices of their own."""
    return {f"npu-{die}" for die in dies}


@contextmanager
def off_the_bus(driver: Driver, board: BoardControl, die: int) -> Iterator[None]:
    """A die has left the PCI bus; afterwards it is back."""
    bus = next(each.pci for each in A3.devices if each.physical_id == die)
    place = driver.node.root / BOARD.relative_to("/") / "sys/bus/pci/devices" / bus
    target = place.readlink()
    board.set_gone(die)
    place.unlink()
    try:
        yield
    finally:
        place.symlink_to(target)
        board.restore(die)


# --- pods ----------------------------------------------------------------------------------------


def start_pod(driver: Driver, space: Space, name: str, made: Object) -> list[str]:
    """A pod with that claim runs on the second node; returns the devices that it has."""
    space.apply(made, placed(pod(name, name, containers=[container("main", name)]), driver.node))
    space.wait_phase(name)
    return space.allocated(name)


def start_example(driver: Driver, space: Space, name: str) -> dict[str, list[str]]:
    """The example's pod runs on the second node; returns its devices, by request."""
    space.apply_example(name, driver.node)
    space.wait_phase(name)
    return space.devices(name)


def assert_sees(space: Space, name: str, dies: Sequence[int]) -> None:
    """The pod's container has the device nodes of just those dies, and npu-smi lists them."""
    assert space.davinci_nodes(name) == sorted(f"/dev/davinci{die}" for die in dies)
    buses = [die.pci for die in A3.devices if die.physical_id in dies]
    assert space.seen_npus(name) == sorted(buses)


def assert_has_dies(
    driver: Driver, space: Space, cel: str, devices: dict[str, tuple[int, ...]]
) -> None:
    """A pod whose claim chooses so has just those devices, of those dies."""
    bus = {die.physical_id: die.pci for die in A3.devices}
    given = Given(
        cel=cel,
        devices={name: tuple(f"davinci{die}" for die in dies) for name, dies in devices.items()},
        shared=("davinci_manager", "devmm_svm", "hisi_hdc"),
        chips=[("Ascend910", bus[die], 65536) for dies in devices.values() for die in dies],
    )
    begin(driver, space, "user", given)
    assert_has(driver, space, "user", given)


def start_module(driver: Driver, space: Space) -> str:
    """Pod `user` runs with a module, and tolerates its taints; returns the module's name."""
    module_request = request(cel=f'{OWN}.type == "module"')
    module_request["exactly"]["tolerations"] = [{"operator": "Exists"}]
    (module,) = start_pod(driver, space, "user", claim("user", module_request))
    assert_sees(space, "user", dies_of(module))
    return module


def events(driver: Driver, kind: str, name: str, namespace: str = "default") -> list[Object]:
    """The Events of our driver on the second node about an object."""
    return [
        event
        for event in driver.cluster.objects("events", namespace=namespace)
        if event["involvedObject"]["kind"] == kind
        and event["involvedObject"]["name"] == name
        and event.get("reportingInstance") == driver.node.name
    ]


def names_die(message: str, die: int) -> bool:
    """Whether a die is named, and not another one whose name begins alike."""
    return re.search(rf"\bnpu-{die}\b", message) is not None


# --- both nodes ----------------------------------------------------------------------------------


def test_each_node_has_its_own_board(driver: Driver, space: Space) -> None:
    """Pods that do not choose get an NPU of the first node, whatever is free on the second."""
    first = dataclasses.replace(driver, node=driver.cluster.node)
    assert len(first.devices()) == 8
    assert {item["spec"]["nodeName"] for item in driver.slices()} == {driver.node.name}
    assert space.start("user", request(count=8))["spec"]["nodeName"] == first.node.name
    assert set(space.allocated("user")) == set(first.devices())
    assert len(space.seen_npus("user")) == 8
    space.delete_pod("user")
    first.wait_without_traces()


# --- the union policy ----------------------------------------------------------------------------


@pytest.mark.usefixtures("union")
def test_container_has_both_dies_of_its_module(driver: Driver, space: Space) -> None:
    """It has no other die: in npu-smi, in /dev and in the CDI file; each card is one device."""
    types = {name: one["attributes"]["type"] for name, one in driver.devices().items()}
    assert types == {module: {"string": "module"} for module in MODULES}
    assert_has_dies(driver, space, f"{OWN}.cardId == 3", {"module-3": (6, 7)})


@pytest.mark.usefixtures("union")
def test_example_of_a_module(driver: Driver, space: Space) -> None:
    """The pod has one device and sees both dies of the card."""
    ((module,),) = start_example(driver, space, "module").values()
    assert_sees(space, "module", dies_of(module))


@pytest.mark.usefixtures("union")
def test_example_of_the_nearest_pair_under_union(driver: Driver, space: Space) -> None:
    """It is a module."""
    assert list(start_example(driver, space, "nearest-pair")) == ["pair/module"]


@pytest.mark.usefixtures("union")
def test_die_that_leaves_the_bus_is_held_on(
    driver: Driver, space: Space, board: BoardControl
) -> None:
    """The module stays with its claim and in the slice, tainted, and an Event names the die."""
    module = start_module(driver, space)
    before, die = driver.devices()[module], dies_of(module)[0]

    def said() -> list[str]:
        about = events(driver, "ResourceClaim", "user", space.name)
        return [each["message"] for each in about if each["type"] == "Warning"]

    with off_the_bus(driver, board, die):
        space.wait(lambda: driver.devices().get(module, {}).get("taints"), f"a taint on {module}")
        space.wait(lambda: any(names_die(each, die) for each in said()), "a warning on the claim")
        assert space.allocated("user") == [module]
        assert space.wait_phase("user")["status"]["containerStatuses"][0]["restartCount"] == 0
        assert len(driver.traces()) == 2
    space.wait(lambda: driver.devices().get(module) == before, f"{module} as it was")
    space.delete_pod("user")
    wait_published(driver, MODULES)
    driver.wait_without_traces()


# --- the independent policy ----------------------------------------------------------------------


@pytest.mark.usefixtures("independent")
def test_container_has_its_die_alone(driver: Driver, space: Space) -> None:
    """It does not have the other die of its card: in npu-smi, in /dev and in the CDI file.

    Each die is a device, which names its module.
    """
    modules = {name: one["attributes"]["module"] for name, one in driver.devices().items()}
    assert modules == {
        f"npu-{die.physical_id}": {"string": f"module-{die.card_id}"} for die in A3.devices
    }
    assert_has_dies(driver, space, f"{OWN}.physicalId == 7", {"npu-7": (7,)})


@pytest.mark.usefixtures("independent")
def test_example_of_both_dies(driver: Driver, space: Space) -> None:
    """With matchAttribute on `module` the pod has the two dies of one card."""
    (devices,) = start_example(driver, space, "both-dies-of-a-card").values()
    assert set(devices) in [names_of(dies) for dies in CARDS.values()]
    assert_sees(space, "both-dies-of-a-card", [int(one.removeprefix("npu-")) for one in devices])


@pytest.mark.usefixtures("independent")
def test_example_of_the_nearest_pair_under_independent(driver: Driver, space: Space) -> None:
    """It is two dies of a card, although any two NPUs would do."""
    given = start_example(driver, space, "nearest-pair")
    assert list(given) == ["pair/one-card"]
    assert set(given["pair/one-card"]) in [names_of(dies) for dies in CARDS.values()]
