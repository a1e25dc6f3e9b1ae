"""Chips that move between the pool and a resource, in the whole daemon."""

from __future__ import annotations

import pytest

from dev.rig.parts import Rig
from dev.rig.waiting import until
from tests.device_plugin.whole_daemon import RESOURCE, allocated, devices, ids, in_file, pool
from trio_npu_dra.kit.grpc import RpcError

pytestmark = pytest.mark.usefixtures("quick")


async def test_a_chip_moves_once_its_pod_has_ended(rig: Rig) -> None:
    """It is in neither place while the pod has it; the kubelet tells nobody that it ended."""
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


async def test_a_chip_moves_to_a_resource_once_its_claim_has_ended(rig: Rig) -> None:
    """And once no process uses it that nobody knows."""
    async with rig.registered() as kubelet:
        await rig.published()
        claim = rig.claim("a", "npu-5")
        await kubelet.prepare([claim])
    rig.device_plugin = "4-5"
    async with rig.device_manager() as manager, rig.registered() as kubelet:
        await manager.wait_for(RESOURCE, *ids(4))
        await rig.published()
        assert "npu-5" in pool(rig)
        await kubelet.unprepare([claim])
        await manager.wait_for(RESOURCE, *ids(4, 5))
        await until(lambda: "npu-5" not in pool(rig))


async def test_a_chip_moves_to_a_resource_once_its_last_partition_is_released(rig: Rig) -> None:
    """Until then nothing else of it is given out; chips in a resource are not cut."""
    rig.partitioning = "dynamic"
    quarter = "npu-5-vir05-1c-8g-0"
    async with rig.registered() as kubelet:
        await rig.published()
        claim = rig.claim("a", quarter)
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
    rig.device_plugin = "1-7"
    async with rig.device_manager() as manager, rig.registered() as kubelet:
        await manager.wait_for(RESOURCE, *ids(1, 2, 3, 4, 6, 7))
        await until(
            lambda: [name for name in pool(rig) if not name.startswith("npu-0")] == [quarter]
        )
        assert "npu-0-vir05-1c-8g-0" in pool(rig)
        with pytest.raises(RpcError, match="Ascend910-5 is no device of huawei"):
            await manager.allocate(RESOURCE, ids(5))
        assert (await kubelet.unprepare([claim]))[claim.uid] == ""
        await manager.wait_for(RESOURCE, *ids(*range(1, 8)))
        await until(lambda: quarter not in pool(rig))


async def test_a_chip_moves_to_a_resource_once_its_last_share_is_released(rig: Rig) -> None:
    """It stays with its shares until then; chips in a resource have none."""
    rig.sharing = "shares"
    async with rig.registered() as kubelet:
        await rig.published()
        claim = rig.claim("a", "npu-5", share_id="7e57a3b1-0000-4000-8000-000000000001")
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
    rig.device_plugin = "1-7"
    async with rig.device_manager() as manager, rig.registered() as kubelet:
        await manager.wait_for(RESOURCE, *ids(1, 2, 3, 4, 6, 7))
        await until(lambda: pool(rig) == ["npu-0", "npu-5"])
        (taints,) = (one.taints for one in devices(rig) if one.name == "npu-5")
        assert [taint.key for taint in taints or ()] == ["npu.huawei.com/leaving"]
        await kubelet.unprepare([claim])
        await manager.wait_for(RESOURCE, *ids(*range(1, 8)))
        await until(lambda: pool(rig) == ["npu-0"])


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
