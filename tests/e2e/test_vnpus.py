"""A 310P that an administrator split manually, on its own node; claimed through a DeviceClass."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dev.cluster.cluster import NodeAccess
from dev.cluster.driver import DRIVER, Driver
from tests.e2e.boards import laid_out, wait_published
from tests.e2e.partitions import set_vnpu
from tests.e2e.space import Space, claim, container, placed, pod, request
from trio_npu_dra.lab.simulator import load_profile

pytestmark = pytest.mark.cluster

BOARD = load_profile("300i-pro-2")
CARD = BOARD.devices[0].card_id
QUARTER, HALF = "npu-0-vnpu-100", "npu-0-vnpu-101"
NAMES = re.compile(r"^\| \d+ +(310P3\S*) ", re.MULTILINE)


@pytest.fixture(scope="module")
def driver(driver: Driver, second_node: NodeAccess) -> Iterator[Driver]:
    """The driver on the second node, with two 310P; both are removed afterwards."""
    with laid_out(driver, second_node, BOARD) as there:
        yield there


@pytest.fixture
def cut(driver: Driver) -> Iterator[None]:
    """The first chip is cut into a quarter and a half; afterwards it is whole."""
    for template in ("vir02", "vir04"):
        set_vnpu(driver, CARD, "create-vnpu", "-f", template)
    wait_published(driver, {QUARTER, HALF, "npu-1"})
    yield
    for vnpu in ("100", "101"):
        set_vnpu(driver, CARD, "destroy-vnpu", "-v", vnpu)
    wait_published(driver, {"npu-0", "npu-1"})


@pytest.mark.usefixtures("cut")
def test_quarter_of_a_chip_that_was_cut_by_hand(driver: Driver, space: Space) -> None:
    """It is published with its template; npu-smi in its pod shows it alone."""
    quarter = driver.devices()[QUARTER]
    attributes = {name: next(iter(one.values())) for name, one in quarter["attributes"].items()}
    assert (attributes["type"], attributes["template"]) == ("vnpu", "vir02")
    assert attributes["parentUUID"] == "-".join(BOARD.devices[0].die_id)
    assert "uuid" not in attributes
    assert quarter["capacity"]["aiCores"] == {"value": "2"}

    space.apply_example("vnpu-classes")
    for name in ("quarter", "again"):
        wanted = claim(name, request())
        wanted["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = (
            "ascend-310p-quarter"
        )
        user = placed(pod(name, name, containers=[container("main", name)]), driver.node)
        space.apply(wanted, user)
        if name == "quarter":
            space.wait_phase(name)
    assert space.allocated("quarter") == [QUARTER]
    assert space.davinci_nodes("quarter") == ["/dev/davinci100"]
    table = space.execute("quarter", "npu-smi", "info")
    assert NAMES.findall(table) == ["310P3vir02"]
    assert "0    / 5381" in table

    space.assert_waits("again")
    space.delete_pod("quarter")
    space.wait_phase("again")
    assert space.allocated("again") == [QUARTER]
    space.delete_pod("again")
    driver.wait_without_traces()


@pytest.mark.usefixtures("cut")
def test_class_of_whole_npus_gives_no_partition(driver: Driver, space: Space) -> None:
    """A claim for a whole NPU waits rather than get a partition."""
    for name in ("one", "two"):
        user = placed(pod(name, name, containers=[container("main", name)]), driver.node)
        space.apply(claim(name, request(cel=f'device.attributes["{DRIVER}"].cardId >= 0')), user)
        if name == "one":
            space.wait_phase(name)
    assert space.allocated("one") == ["npu-1"]
    space.assert_waits("two")
    for name in ("one", "two"):
        space.delete_pod(name)
    driver.wait_without_traces()
