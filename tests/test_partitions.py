"""Partitions of NPUs, from slices to vNPUs of the simulated board, with the whole daemon."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from dev.rig.looking import SERVER, changed
from dev.rig.parts import Rig, served_rig
from dev.rig.waiting import until
from tests.reliability.holds import given
from trio_npu_dra.agent.control.client import ask_all
from trio_npu_dra.agent.control.report import HealthReport
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.kit.api.objects import ResourceClaim, ResourceSlice
from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from trio_npu_dra.lab.simulator import BoardControl, Severity
from trio_npu_dra.lab.standins.api_rules import Kubernetes

A_QUARTER, A_HALF = "npu-0-vir05-1c-8g-{}", "npu-0-vir10-3c-16g-{}"


@pytest.fixture
async def rig(folder: Path, simulator: Path) -> AsyncIterator[Rig]:
    """A machine with two 910B4, which are cut."""
    board = changed(SERVER, 2)
    async with served_rig(folder, simulator, profile=board, partitioning="dynamic") as rig:
        yield rig


@pytest.fixture
def control(rig: Rig) -> Iterator[BoardControl]:
    """What others do to the board."""
    with rig.board.control() as control:
        yield control


async def published(rig: Rig) -> dict[str, int]:
    """How many slices there are with counters, how many devices, and of these partitions."""
    await until(lambda: len(rig.api.all(ResourceSlice)) == 2)
    specs = [item.spec for item in rig.api.all(ResourceSlice)]
    devices = [device for spec in specs for device in spec.devices or ()]
    return {
        "sets": sum(len(spec.shared_counters or ()) for spec in specs),
        "devices": len(devices),
        "pieces": sum("-vir" in device.name for device in devices),
    }


async def test_a_claim_gets_a_partition_that_is_cut_for_it(rig: Rig, control: BoardControl) -> None:
    """Its containers get the node of the vNPU as that of an NPU; afterwards nothing is left."""
    claim = rig.claim("one", A_QUARTER.format(0))
    async with rig.registered() as kubelet:
        assert await published(rig) == {"sets": 2, "devices": 20, "pieces": 18}
        before = rig.api.all(ResourceSlice)
        answers = await kubelet.prepare([claim])
        assert answers[claim.uid].error == ""
        (vnpu,) = control.vnpus(0)
        assert vnpu.template == "vir05_1c_8g"
        (file,) = rig.cdi_files
        assert [*given(file).values()] == [[f"/dev/davinci{vnpu.id}"]]
        assert f'"/dev/vdavinci{vnpu.id}"' in file.read_text()
        errors = await kubelet.unprepare([claim])
        assert errors == {claim.uid: ""}
        assert control.vnpus(0) == ()
        assert not rig.cdi_files
        assert not rig.records
        assert rig.api.all(ResourceSlice) == before


# --- churn ---------------------------------------------------------------------------------------


def _free(rig: Rig) -> dict[str, dict[str, int]]:
    """What the counters of the slices leave, by chip, when all claims have what they say."""
    specs = [item.spec for item in rig.api.all(ResourceSlice)]
    left = {
        one.name: {
            name: int(parse_quantity(counter.value)) for name, counter in one.counters.items()
        }
        for spec in specs
        for one in spec.shared_counters or ()
    }
    devices = {device.name: device for spec in specs for device in spec.devices or ()}
    for stored in rig.api.all(ResourceClaim):
        assert stored.status
        assert stored.status.allocation
        for result in stored.status.allocation.devices.results:
            for taken in devices[result.device].consumes_counters or ():
                for name, counter in taken.counters.items():
                    left[taken.counter_set][name] -= int(parse_quantity(counter.value))
    return left


def _told(dcmi: Dcmi, chip: int) -> dict[str, int]:
    """What the library says is left of a chip, by counter."""
    ref = ChipRef(chip, 0)
    total = dcmi.total_resources(ref)
    parts = [dcmi.vdevice(ref, vnpu).resources for vnpu in dcmi.vnpus(ref)]

    def left(name: str) -> int:
        return int(getattr(total, name) - sum(getattr(part, name) for part in parts))

    counters = ("ai_cores", "ai_cpus", "vpc", "jpegd")
    found = {name.replace("_", "-"): left(name) for name in counters}
    return found | {"memory": left("memory_mib") << 20}


def _agree(rig: Rig, dcmi: Dcmi, control: BoardControl) -> None:
    """See that slices, chips and records tell the same."""
    left = _free(rig)
    made = set()
    for chip in range(2):
        counted, told = left[f"npu-{chip}"], _told(dcmi, chip)
        partitions = control.vnpus(chip)
        if not partitions:
            told.pop("ai-cpus")  # a 910B has one more once it is cut
        assert {name: counted[name] for name in told} == told
        assert counted["slots"] == 16 - len(partitions)
        made |= {vnpu.id for vnpu in partitions}
    records = [json.loads(path.read_bytes()) for path in rig.records]
    assert {one["vnpu"] for record in records for one in record.get("pieces", {}).values()} == made


async def test_slices_chips_and_records_agree_while_claims_come_and_go(
    rig: Rig, control: BoardControl
) -> None:
    """At each stop in between and at the end."""
    chance = random.Random(12)  # noqa: S311 - no secret
    dcmi = Dcmi.load(rig.board.root)
    dcmi.init()
    running: dict[str, Claim] = {}
    async with rig.registered() as kubelet:
        await published(rig)
        specs = [item.spec for item in rig.api.all(ResourceSlice)]
        devices = [one for spec in specs for one in spec.devices or () if "-vir" in one.name]
        taken: dict[str, str] = {}
        for number in range(25):
            if running and (chance.random() < 0.4 or len(running) > 8):
                name, gone = running.popitem()
                assert await kubelet.unprepare([gone]) == {gone.uid: ""}
                rig.api.remove(ResourceClaim, name, "default")
                taken = {device: by for device, by in taken.items() if by != name}
            left = _free(rig)
            fitting = [
                one.name
                for one in devices
                if one.name not in taken
                for part in one.consumes_counters or ()
                if all(
                    int(parse_quantity(counter.value)) <= left[part.counter_set][counter_name]
                    for counter_name, counter in part.counters.items()
                )
            ]
            if fitting:
                name, device = f"c{number}", chance.choice(fitting)
                running[name], taken[device] = rig.claim(name, device), name
                answers = await kubelet.prepare([running[name]])
                assert answers[running[name].uid].error == ""
            if number % 5 == 0:
                _agree(rig, dcmi, control)
        for name, gone in running.items():
            assert await kubelet.unprepare([gone]) == {gone.uid: ""}
            rig.api.remove(ResourceClaim, name, "default")
        _agree(rig, dcmi, control)
        assert not rig.records
        assert [item.spec for item in rig.api.all(ResourceSlice)] == specs


async def test_a_fault_of_a_chip_taints_its_partitions(rig: Rig, control: BoardControl) -> None:
    """All of them, and those of no other chip."""
    async with rig.registered():
        await published(rig)
        control.add_fault(0, 0x81B38002, Severity.CRITICAL)

        def tainted() -> set[str]:
            specs = [item.spec for item in rig.api.all(ResourceSlice)]
            return {one.name for spec in specs for one in spec.devices if one.taints}

        await until(lambda: len(tainted()) == 10)
        assert all(name == "npu-0" or name.startswith("npu-0-") for name in tainted())


async def test_health_and_metrics_show_who_has_which_partition(
    rig: Rig, control: BoardControl
) -> None:
    """Those created manually, too."""
    by_hand = control.create_vnpu(1, "vir10_3c_16g")
    claim = rig.claim("one", A_QUARTER.format(0))
    async with rig.registered() as kubelet:
        await rig.published()
        await kubelet.prepare([claim])
        (ours,) = control.vnpus(0)
        folder = rig.settings.plugin_directory

        partitions: list[str] = []
        while len(partitions) < 2:  # until the watcher has looked at the NPUs
            (reply,) = await trio.to_thread.run_sync(ask_all, folder, "GET", "/health")
            report = HealthReport.model_validate_json(reply.text)
            assert report.partitioning.is_on
            assert (report.partitioning.problem, report.partitioning.refused) == ("", {})
            partitions = [*map(str, report.partitioning.partitions)]
        assert partitions == [
            f"npu-0 vNPU {ours.id} vir05_1c_8g, cut for claim default/one",
            f"npu-1 vNPU {by_hand} vir10_3c_16g, cut by hand",
        ]


async def test_a_vnpu_that_was_cut_by_hand_is_free_as_soon_as_its_claim_has_ended(
    rig: Rig, control: BoardControl
) -> None:
    """Although no reading of the NPUs is due."""
    rig.health_poll_interval = 60.0
    vnpu = control.create_vnpu(0, "vir05_1c_8g")
    first, second = (rig.claim(name, f"npu-0-vnpu-{vnpu}") for name in ("first", "second"))
    other = rig.claim("other", "npu-1-vir05-1c-8g-0")
    async with rig.registered() as kubelet:
        await published(rig)
        assert (await kubelet.prepare([first]))[first.uid].error == ""
        control.use_vnpu(0, vnpu)
        await kubelet.prepare([other])
        await kubelet.unprepare([other])  # the NPUs are read now
        await kubelet.unprepare([first])
        await trio.sleep(0.2)  # the Ascend driver notices the end of a container late
        control.use_vnpu(0, vnpu, in_use=False)
        with trio.fail_after(10):
            assert (await kubelet.prepare([second]))[second.uid].error == ""


async def test_where_the_server_drops_counters_whole_npus_are_published(rig: Rig) -> None:
    """And a claim for one is served; `npu-dra health` says why there are no partitions."""
    rig.api.kubernetes = Kubernetes(minor=34, taints=False, counters=False)
    claim = rig.claim("one", "npu-0")
    async with rig.registered() as kubelet:
        published = await rig.published()
        assert [device.name for device in published.spec.devices or ()] == [
            f"npu-{number}" for number in range(2)
        ]
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
        folder = rig.settings.plugin_directory
        (reply,) = await trio.to_thread.run_sync(ask_all, folder, "GET", "/health")
        report = HealthReport.model_validate_json(reply.text)
        assert report.partitioning.problem == "the API server keeps no counters: whole NPUs only"
