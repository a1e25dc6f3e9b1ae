"""What the whole daemon hands out while chips come, go and are tied together."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dev.rig.parts import Rig, served_rig
from dev.rig.waiting import until
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import ResourceSlice
from trio_npu_dra.lab.simulator import load_profile

MODULES = [f"module-{number}" for number in range(8)]
DIES = [f"npu-{number}" for number in range(16)]


@pytest.fixture
async def a3(folder: Path, simulator: Path) -> AsyncIterator[Rig]:
    """A node with eight A3 modules, whose dies go together."""
    async with served_rig(folder, simulator, profile=load_profile("a3-16")) as rig:
        yield rig


def devices(rig: Rig) -> list[str]:
    """What is published."""
    return [device.name for one in rig.api.all(ResourceSlice) for device in one.spec.devices or ()]


def said(rig: Rig, reason: str) -> dict[str, str]:
    """Messages of the Events with a reason, by the object's kind."""
    events = (event for event in rig.api.all(Event) if event.reason == reason)
    return {event.involved_object.kind: event.message for event in events}


async def test_a_die_that_is_held_keeps_its_module_from_being_offered(a3: Rig) -> None:
    """A changed policy breaks no hold and is reported; after the release all follow it."""
    with a3.board.control() as control:
        control.set_multi_die_policy(independent=True)
        async with a3.registered() as kubelet:
            await until(lambda: devices(a3) == DIES)
            claim = a3.claim("train", "npu-3")
            await kubelet.prepare([claim])
            control.set_multi_die_policy(independent=False)
            min((a3.board.sysfs_root / "bus/pci/devices").iterdir()).unlink()  # have it read now
            await until(lambda: devices(a3) == ["module-0", "npu-3", *MODULES[2:]])
            await until(lambda: bool(said(a3, "NpuPolicyChanged")))
            assert said(a3, "NpuPolicyChanged") == {
                "Node": "the multi-die policy was independent and is union now; "
                "npu-3 stays until it is released"
            }
            assert await kubelet.unprepare([claim]) == {claim.uid: ""}
            await until(lambda: devices(a3) == MODULES)


@pytest.mark.parametrize("nodes_too", [False, True], ids=["hot reset", "driver reload"])
async def test_a_reset_takes_no_chip_from_its_holder(rig: Rig, *, nodes_too: bool) -> None:
    """Its device is published and tainted meanwhile; its record and its CDI file stay."""

    def tainted() -> bool:
        return any(
            device.taints
            for one in rig.api.all(ResourceSlice)
            for device in one.spec.devices or ()
            if device.name == "npu-5"
        )

    nodes = list(rig.board.dev_root.glob("davinci[0-9]")) if nodes_too else []
    with rig.board.control() as control:
        async with rig.registered() as kubelet:
            await rig.published()
            claim = rig.claim("train", "npu-5")
            assert (await kubelet.prepare([claim]))[claim.uid].error == ""
            files = {path: path.read_bytes() for path in (*rig.records, *rig.cdi_files)}
            control.set_gone(5)
            for node in nodes:
                node.rename(rig.folder / node.name)
            await until(tainted)
            for node in nodes:
                node.symlink_to("/dev/null")
            control.restore(5)
            await until(lambda: not tainted())
            assert {path: path.read_bytes() for path in (*rig.records, *rig.cdi_files)} == files
            assert (await kubelet.prepare([claim]))[claim.uid].error == ""


async def test_a_card_that_leaves_the_bus_stays_for_who_holds_it(rig: Rig) -> None:
    """Events and the health stream tell its holder; no new claim can get it."""
    bus = rig.board.sysfs_root / "bus/pci/devices"
    async with rig.registered() as kubelet:
        await rig.published()
        claim = rig.claim("train", "npu-5")
        await kubelet.prepare([claim])
        for number, address in ((5, "0000:41:00.0"), (6, "0000:01:00.0")):
            (rig.board.dev_root / f"davinci{number}").unlink()
            (bus / address).unlink()
        await until(lambda: "npu-6" not in devices(rig))
        await until(lambda: len(said(rig, "NpuFault")) == 2)
        assert "npu-5" in devices(rig)
        assert said(rig, "NpuFault")["ResourceClaim"].startswith(
            "npu-5: 40F84E00 the chip does not exist any more"
        )
        await kubelet.unprepare([claim])
        await until(lambda: "npu-5" not in devices(rig))
