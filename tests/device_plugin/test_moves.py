"""Chips that move between the pool and a resource, in the whole daemon."""

from __future__ import annotations

import pytest

from dev.rig.parts import Rig
from dev.rig.waiting import until
from tests.device_plugin.instance import RESOURCE, ids
from tests.device_plugin.whole_daemon import allocated, devices, in_file, pool
from trio_npu_dra.kit.grpc import RpcError

pytestmark = pytest.mark.usefixtures("quick")


async def test_a_chip_moves_once_its_pod_has_ended(rig: Rig) -> None:
    """It is in neither place while the pod has it; the kubelet does not tell that it ended."""
    rig.device_plugin = "2"
    async with rig.device_manager() as manager:
        async with rig.daemon():
            await manager.wait_for(RESOURCE, *ids(2))
            await allocated(manager, "train", 2)
        rig.device_plugin = "3"
        async with rig.registered():
            await manager.wait_for(RESOURCE, *ids(3))
            await rig.published()
            assert "npu-2" not in pool(rig)
            assert in_file(rig) == ids(2, 3)
            del manager.pods["ml", "train"]
            await until(lambda: "npu-2" in pool(rig))
            await until(lambda: in_file(rig) == ids(3))


@pytest.mark.parametrize(
    ("changes", "device", "share_id"),
    [
        ({}, "npu-5", None),
        ({"sharing": "shares"}, "npu-5", "7e57a3b1-0000-4000-8000-000000000001"),
        ({"partitioning": "dynamic"}, "npu-5-vir05-1c-8g-0", None),
    ],
    ids=["whole", "share", "partition"],
)
async def test_a_chip_moves_to_a_resource_once_its_claim_has_ended(
    rig: Rig, changes: dict[str, str], device: str, share_id: str | None
) -> None:
    """Nothing else of it is given out until then, and no new claim gets it; it is not cut there."""
    vars(rig).update(changes)
    async with rig.registered() as kubelet:
        await rig.published()
        claim = rig.claim("a", device, share_id=share_id)
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
    rig.device_plugin = "1-7"
    async with rig.device_manager() as manager, rig.registered() as kubelet:
        await manager.wait_for(RESOURCE, *ids(1, 2, 3, 4, 6, 7))
        await until(lambda: [name for name in pool(rig) if "npu-0" not in name] == [device])
        (taints,) = (one.taints for one in devices(rig) if one.name == device)
        assert [taint.key for taint in taints or ()] == ["npu.huawei.com/leaving"]
        with pytest.raises(RpcError, match="Ascend910-5 is no device of huawei"):
            await manager.allocate(RESOURCE, ids(5))
        assert (await kubelet.unprepare([claim]))[claim.uid] == ""
        await manager.wait_for(RESOURCE, *ids(*range(1, 8)))
        await until(lambda: device not in pool(rig))


async def test_a_chip_that_an_unknown_process_uses_does_not_move(rig: Rig) -> None:
    """Neither to a resource nor back, until the process has ended; a restart forgets nothing."""
    with rig.board.control() as control:
        control.set_processes(2, [(4711, 1 << 20)])
        rig.device_plugin = "2-3"
        async with rig.device_manager() as manager, rig.registered():
            await manager.wait_for(RESOURCE, *ids(3))
            await rig.published()
            assert "npu-2" not in pool(rig)
            control.set_processes(2, [])
            await manager.wait_for(RESOURCE, *ids(2, 3))
        control.set_processes(3, [(4711, 1 << 20)])
        rig.device_plugin = ""
        for _ in range(2):
            async with rig.device_manager() as manager, rig.registered():
                await until(lambda: len(pool(rig)) == 7)
                assert "npu-3" not in pool(rig)
                await until(lambda: in_file(rig) == ids(3))
        async with rig.device_manager() as manager, rig.registered():
            control.set_processes(3, [])
            await until(lambda: len(pool(rig)) == 8)
            await until(lambda: not rig.cdi_files)
            assert manager.registrations == []
