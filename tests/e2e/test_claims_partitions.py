"""Many claims for partitions of NPUs: the slices, the NPUs and the ledger agree."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from operator import sub

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import PLUGIN, Driver
from tests.e2e.partitions import HALF, NPU_SMI, QUARTER, cut_for_claims, partition, vnpus
from tests.e2e.space import Space, claim, is_going, pod
from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.lab.simulator import load_profile
from trio_npu_dra.lab.simulator.profile import DeviceFacts

pytestmark = [pytest.mark.cluster, pytest.mark.since("1.36")]

CLAIMS = 200
NEW = 20
"""Claims that come at once: sometimes more than the NPUs have room for."""
TEMPLATES = (
    *(QUARTER, QUARTER, HALF, QUARTER),
    *(QUARTER, "vir10_3c_16g_nm", QUARTER, "vir10_4c_16g_m"),
)
CHIPS = load_profile("910b4-8").devices
NAMES = [f"npu-{chip.physical_id}" for chip in CHIPS]
RESOURCES = re.compile(
    r"^Free/Total: AICORE (\d+)/(\d+), Memory\(MB\) (\d+)/(\d+), AICPU (\d+)/(\d+)$", re.MULTILINE
)
VNPU = re.compile(r"^Vnpu ID (\d+): (\S+), ", re.MULTILINE)
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The partitions of an NPU: their templates, AI cores, MiB of memory and AI CPUs."""

    templates: list[str]
    ai_cores: int
    memory: int
    ai_cpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The partitions of each NPU by the scheduler's counters and by the NPU itself.

    `recorded` are the ledger's vNPUs with their templates, `vnpus` those of the NPU.
    """

    counted: list[Taken]
    taken: list[Taken]
    recorded: list[dict[int, str]]
    vnpus: list[dict[int, str]]

    def assert_agreed(self) -> None:
        """Counters and NPU agree on the resources, ledger and NPU on the vNPUs."""
        assert self.counted == self.taken
        assert self.recorded == self.vnpus


@pytest.fixture(scope="module", autouse=True)
def _cut(driver: Driver) -> Iterator[None]:
    with cut_for_claims(driver) as keeps_counters:
        assert keeps_counters
        yield


def test_counters_chips_and_ledger_agree(driver: Driver, space: Space, notes: list[str]) -> None:
    """They agree at each pause while claims come and go, and at the end; no claim was refused."""
    began, stops = time.monotonic(), 0
    coming = [f"user-{number}" for number in range(CLAIMS)]
    while coming or not all(map(is_going, space.cluster.objects("pods", namespace=space.name))):
        new, coming = coming[:NEW], coming[NEW:]
        asked = [
            claim(name, partition(template, cel="true"))
            for name, template in zip(new, cycle(TEMPLATES), strict=False)
        ]
        space.apply(*asked, *(pod(name, name) for name in new))
        users = space.wait(
            lambda: still_and_agreed(driver, space), "all pods running that there is room for"
        )
        stops += 1
        stay = users[stops % 4 :: 4] if coming else []
        going = sorted(set(users) - set(stay))
        space.begin_delete("pods", *going, grace=1)
        space.begin_delete("resourceclaims", *going)
    space.clear()
    driver.wait_without_traces()
    look(driver, space).assert_agreed()
    assert vnpus(driver) == []
    said = [line for line in driver.log().splitlines() if f'"{space.name}/' in line]
    assert any("claim prepared" in line for line in said)
    assert [line for line in said if "claim not prepared" in line] == []
    took = time.monotonic() - began
    notes.append(f"{took:6.1f} s  for {CLAIMS} claims for partitions, with {stops} stops")


def still(space: Space) -> list[str]:
    """The running pods, once no object is being deleted and no other pod has room; else none."""
    pods = space.cluster.objects("pods", namespace=space.name)
    running = [each for each in pods if each["status"]["phase"] == "Running"]
    waiting = [each for each in pods if each not in running]
    if any(map(is_going, pods)) or not all(map(has_no_room, waiting)):
        return []
    claims = space.cluster.objects("resourceclaims", namespace=space.name)
    names = sorted(each["metadata"]["name"] for each in running)
    given = sorted(each["metadata"]["name"] for each in claims if is_allocated(each))
    return names if names == given and not any(map(is_going, claims)) else []


def has_no_room(pod: Object) -> bool:
    """Whether the scheduler has reported that a pod has to wait."""
    return any(
        each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable"
        for each in pod["status"].get("conditions", [])
    )


def is_allocated(claim: Object) -> bool:
    """Whether the scheduler gave a claim its device."""
    return "allocation" in claim.get("status", {})


def still_and_agreed(driver: Driver, space: Space) -> list[str]:
    """What `still` says; it was so, and what was seen agreed, all the while that was looked at."""
    users = still(space)
    if not users:
        return []
    seen = look(driver, space)
    if users != still(space):  # a waiting pod got the room of a deleted one
        return []
    seen.assert_agreed()
    return users


def look(driver: Driver, space: Space) -> Seen:
    """The partitions that slices, NPUs and ledger show now."""
    claims = space.cluster.objects("resourceclaims", namespace=space.name)
    chips = [read_chip(driver, chip) for chip in CHIPS]
    return Seen(
        counted=given(driver, filter(is_allocated, claims)),
        taken=[taken for taken, _ in chips],
        recorded=recorded(driver),
        vnpus=[vnpus for _, vnpus in chips],
    )


def given(driver: Driver, claims: Iterable[Object]) -> list[Taken]:
    """The part that claims take from the counters of each NPU; no counter falls below zero."""
    devices = driver.devices()
    left = {
        each["name"]: amounts(each)
        for item in driver.slices()
        for each in item["spec"].get("sharedCounters", [])
    }
    has = {name: counters.copy() for name, counters in left.items()}
    templates: dict[str, list[str]] = {name: [] for name in left}
    for each in claims:
        for result in each["status"]["allocation"]["devices"]["results"]:
            device = devices[result["device"]]
            (takes,) = device["consumesCounters"]
            left[takes["counterSet"]].subtract(amounts(takes))
            templates[takes["counterSet"]].append(device["attributes"]["template"]["string"])
    assert min(amount for counters in left.values() for amount in counters.values()) >= 0
    return [
        Taken(
            templates=sorted(templates[name]),
            ai_cores=has[name]["ai-cores"] - left[name]["ai-cores"],
            memory=(has[name]["memory"] - left[name]["memory"]) // MIB,
            ai_cpus=has[name]["ai-cpus"] - left[name]["ai-cpus"],
        )
        for name in NAMES
    ]


def amounts(counted: Object) -> Counter[str]:
    """A counter set, or what a device takes from one."""
    return Counter(
        {name: int(parse_quantity(one["value"])) for name, one in counted["counters"].items()}
    )


def read_chip(driver: Driver, chip: DeviceFacts) -> tuple[Taken, dict[int, str]]:
    """The resources of a chip that npu-smi shows as taken, and the templates of its vNPUs."""
    where = ("-i", str(chip.card_id), "-c", str(chip.device_id))
    text = driver.node.execute(NPU_SMI, "info", "-t", "info-vnpu", *where)
    resources = RESOURCES.search(text)
    assert resources is not None, text
    free, total = (list(map(int, resources.groups()[start::2])) for start in (0, 1))
    cores, memory, cpus = map(sub, total, free)
    vnpus = {int(number): template for number, template in VNPU.findall(text)}
    taken = Taken(templates=sorted(vnpus.values()), ai_cores=cores, memory=memory, ai_cpus=cpus)
    return taken, vnpus


def recorded(driver: Driver) -> list[dict[int, str]]:
    """The vNPUs of each chip that the ledger's holds have, with their templates."""
    found: dict[str, dict[int, str]] = {f"/dev/davinci{chip.physical_id}": {} for chip in CHIPS}
    for name in driver.records():
        path = driver.node.root / (PLUGIN / "claims" / name).relative_to("/")
        for part in json.loads(path.read_text()).get("pieces", {}).values():
            found[part["chipNode"]][part["vnpu"]] = part["template"]
    return list(found.values())
