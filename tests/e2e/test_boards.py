"""Boards of other families, one after the other on the second node; A3 is in test_modules.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.cluster.cluster import NodeAccess
from dev.cluster.driver import DRIVER, Driver
from tests.e2e.boards import Given, assert_has, begin, laid_out, with_user_space_of_the_bus
from tests.e2e.space import Space
from trio_npu_dra.lab.simulator import Profile, load_profile

pytestmark = pytest.mark.cluster

OWN = f'device.attributes["{DRIVER}"]'
USUAL = ("davinci_manager", "devmm_svm", "hisi_hdc")
OF_950 = ("davinci_manager", "hisi_hdc", "ummu/ummu0", "uburma/uburma0")
TOPOLOGY = "/usr/local/Ascend/driver/topo"
OF_BUS = ("/usr/lib64/liburma.so.0", "/usr/lib64/liburma.so.0.2")
ON_BUS = "950-pod-8"
TELL = 'echo "${HCCL_TOPO_FILE_PATH--}"; ls /usr/lib64/liburma* /usr/lib64/libummu* 2>&- || true'
PODS = {
    # Both chips of a card have one PCI address, and not the same memory.
    "300i-duo-2": {
        "one": Given(
            cel=f"{OWN}.physicalId == 1",
            devices={"npu-1": ("davinci1",)},
            shared=USUAL,
            chips=[("310P3", "0000:81:00.0", 43693)],
        ),
        "card": Given(
            cel=f'{OWN}.module == "module-7"',
            devices={"npu-2": ("davinci2",), "npu-3": ("davinci3",)},
            shared=USUAL,
            chips=[("310P3", "0000:01:00.0", 44280), ("310P3", "0000:01:00.0", 43693)],
        ),
    },
    "950-card-4": {
        "one": Given(
            cel=f"{OWN}.physicalId == 1",
            devices={"npu-1": ("davinci1",)},
            shared=OF_950,
            chips=[("Ascend950PR", "0000:12:00.0", 86016)],
            more_files=(TOPOLOGY,),
        ),
        "joined": Given(
            cel=f'{OWN}.topologyGroup == "ring-1"',
            devices={"npu-2": ("davinci2",), "npu-3": ("davinci3",)},
            shared=OF_950,
            chips=[("Ascend950PR", "0000:81:00.0", 86016), ("Ascend950PR", "0000:82:00.0", 86016)],
            more_files=(TOPOLOGY,),
        ),
    },
    # On the unified bus a chip has no PCI address.
    ON_BUS: {
        "one": Given(
            cel=f"{OWN}.physicalId == 5",
            devices={"npu-5": ("davinci5",)},
            shared=(*OF_950, *(f"uburma/uburma{number}" for number in range(1, 8))),
            chips=[("Ascend950DT_9591", "na", 147456)],
            more_files=(TOPOLOGY, *OF_BUS),
        ),
    },
}
"""The pods of each board, which run at the same time."""


@pytest.fixture(scope="module", params=sorted(PODS))
def board(request: pytest.FixtureRequest) -> Profile:
    """Each board."""
    return load_profile(request.param)


@pytest.fixture(scope="module")
def driver(driver: Driver, second_node: NodeAccess, board: Profile) -> Iterator[Driver]:
    """The driver on the second node with that board; both are removed afterwards."""
    with with_user_space_of_the_bus(second_node), laid_out(driver, second_node, board) as there:
        yield there


def test_container_has_its_chips_and_no_others(
    driver: Driver, space: Space, board: Profile
) -> None:
    """It has them in npu-smi, in /dev and in the CDI file; each chip of the board is a device.

    On the unified bus it has the bus's user space too, and HCCL's variable for the topology file.
    """
    assert set(driver.devices()) == {f"npu-{each.physical_id}" for each in board.devices}
    for name, given in PODS[board.name].items():
        begin(driver, space, name, given)
    for name, given in PODS[board.name].items():
        assert_has(driver, space, name, given)
        told = space.execute(name, "sh", "-c", TELL, container="main").split()
        expected = (f"{TOPOLOGY}/950/atlas_950_1.json", *OF_BUS) if board.name == ON_BUS else ("-",)
        assert told == [*expected]
