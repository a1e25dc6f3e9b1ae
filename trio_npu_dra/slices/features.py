"""What the API server keeps of a slice, learnt without publishing anything.

Taints are on by default from Kubernetes 1.36; a server without them drops them without a word.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import trio

from trio_npu_dra import pulse
from trio_npu_dra.errors import KubeError
from trio_npu_dra.kube.client import KubeClient
from trio_npu_dra.kube.objects import (
    Device,
    DeviceTaint,
    ObjectMeta,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from trio_npu_dra.kube.retry import Retry
from trio_npu_dra.observable import Observable
from trio_npu_dra.slices.publisher import PublisherStatus

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFeatures:
    """What the API server keeps.

    Attributes:
        taints: Taints on devices.
    """

    taints: bool


async def follow_features(
    client: KubeClient,
    *,
    node_name: str,
    driver_name: str,
    features: Observable[ServerFeatures | None],
    status: Observable[PublisherStatus],
) -> None:
    """Keep *features* true, without end: asked at the start and after each loss of contact.

    Args:
        client: The API server; needs `create` on resourceslices.
        node_name: The node, for which alone slices may be created.
        driver_name: The driver.
        features: None until the API server has answered once.
        status: The publisher's, which sees contact come and go.
    """
    retry = Retry("asking what the API server keeps of ResourceSlices", log)
    while True:
        try:
            with pulse.step("asking what the API server keeps", limit=60):
                found = await _ask(client, node_name, driver_name)
        except KubeError as error:
            await trio.sleep(retry.failed(error))
            continue
        retry.recovered()
        if features.set(found):
            _say(found)
        await status.wait_until(lambda status: status.watching)
        await status.wait_until(lambda status: not status.watching)
        await status.wait_until(lambda status: status.watching)


async def _ask(client: KubeClient, node_name: str, driver_name: str) -> ServerFeatures:
    """Have the API server show what it would store of a slice with everything in it.

    Raises:
        KubeError: Refused or unreachable.
    """
    taint = DeviceTaint(key=f"{driver_name}/probe", effect="NoSchedule")
    sent = ResourceSlice(
        metadata=ObjectMeta(generate_name="probe-"),
        spec=ResourceSliceSpec(
            driver=driver_name,
            node_name=node_name,
            pool=ResourcePool(name=node_name, generation=0, resource_slice_count=1),
            devices=(Device(name="probe", taints=(taint,)),),
        ),
    )
    stored = await client.create(sent, dry_run=True)
    return ServerFeatures(taints=any(device.taints for device in stored.spec.devices or ()))


def _say(features: ServerFeatures) -> None:
    if features.taints:
        log.info("sick NPUs are tainted")
    else:
        log.warning(
            "the API server drops taints of devices (feature gate DRADeviceTaints): "
            "sick NPUs are left out of the ResourceSlice instead"
        )
