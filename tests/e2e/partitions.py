"""NPUs that are cut while pods come and go: `--partitioning=dynamic`, and claims for partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from dev.cluster.api import Object
from dev.cluster.driver import DRIVER, NPUS, Driver
from tests.e2e.space import device_class, request

PARTITIONS = "npu-partitions"
QUARTER, HALF = "vir05_1c_8g", "vir10_3c_16g"
OWN = f'device.attributes["{DRIVER}"]'
KEPT = re.compile(r"^npu_dra_server_keeps_counters ([01])", re.MULTILINE)
NPU_SMI = "/usr/local/bin/npu-smi"
IS_FIRST = f"{OWN}.physicalId == 0"


@contextmanager
def cut_for_claims(driver: Driver) -> Iterator[bool]:
    """NPUs are cut, and there is a class for partitions; whether the API server keeps counters."""
    vnpus = f'device.driver == "{DRIVER}" && {OWN}.type == "vnpu"'
    driver.cluster.api.apply([device_class(PARTITIONS, vnpus)])
    driver.set_environment("NPU_DRA_PARTITIONING=dynamic")
    told = driver.cluster.wait(
        lambda: KEPT.search(driver.page("/metrics")), "what the server keeps"
    )
    kept = told[1] == "1"
    if kept:
        wait_all_published(driver)
    yield kept
    driver.set_environment("NPU_DRA_PARTITIONING-")
    driver.cluster.wait(lambda: len(driver.devices()) == NPUS, "no partition published")
    driver.cluster.remove("deviceclass", PARTITIONS)


def wait_all_published(driver: Driver) -> None:
    """Wait until each NPU is published whole and in all partitions that it could be cut into."""
    driver.cluster.wait(lambda: len(driver.devices()) == 10 * NPUS, "all partitions published")


def partition(template: str, cel: str = IS_FIRST) -> Object:
    """A request for a partition of the first NPU, or where `cel` says."""
    made = request(cel=f'{OWN}.template == "{template}" && {cel}')
    made["exactly"]["deviceClassName"] = PARTITIONS
    return made


def whole(cel: str = IS_FIRST) -> Object:
    """A request for all of an NPU."""
    return request(cel=f'{OWN}.type == "npu" && {cel}')


def set_vnpu(driver: Driver, card: int, what: str, *arguments: str) -> None:
    """Create or destroy a vNPU of a card's first chip, as an administrator does."""
    where = ("-i", str(card), "-c", "0")
    driver.node.execute(NPU_SMI, "set", "-t", what, *where, *arguments)


def vnpus(driver: Driver) -> list[int]:
    """The vNPUs of all chips of the simulated board."""
    with driver.board() as board:
        return [one.id for device in range(NPUS) for one in board.vnpus(device)]
