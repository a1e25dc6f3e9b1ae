"""Learns which fields of a slice the API server keeps, by dry runs.

A server silently drops the fields of a feature that is off, and refuses a slice with a value that
it does not know. Kubernetes 1.34, with its alpha features on, does not know the taint effect
`None`, and takes counters in another shape (pkg/apis/resource/validation of 1.34.3 and 1.36.3).
"""

import logging
import random
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from trio_npu_dra.agent.devices.taints import TaintEffect
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import (
    CapacityPolicy,
    Counter,
    Device,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ObjectMeta,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import Invalid, KubeError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.base.pace import Retry
from trio_npu_dra.kit.pool import PublisherStatus

log = logging.getLogger(__name__)

_ASK_AGAIN_SECONDS: Final = 3600.0
"""Between two questions without a reason, give or take a half."""

SPREAD_SECONDS: Final = 60.0
"""Over which the nodes ask again after a restart of the API server.

It charges each dry run for the watches of slices, which all nodes have: 5,000 dry runs at once are
50 seconds of all that its flow control gives to service accounts.
"""

Devices = tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class ServerFeatures:
    """The features that the API server keeps; by default all."""

    # Effects with which it keeps taints of devices; none if it drops taints.
    taint_effects: frozenset[TaintEffect] = frozenset(TaintEffect)
    counters: bool = True  # counter sets, in slices of their own, and consumption
    shares: bool = True  # several allocations of a device, and their policies

    @property
    def taints(self) -> bool:
        """Whether unhealthy NPUs are tainted, not left out."""
        return bool(self.taint_effects)


async def follow_features(
    client: KubeClient,
    *,
    node_name: str,
    driver_name: str,
    features: Observable[ServerFeatures | None],
    status: Observable[PublisherStatus],
) -> None:
    """Keep *features* true, until cancelled; None means that the API server has not answered yet.

    The API server is asked at the start, and again when the publisher's *status* shows that it may
    be another one. That needs `create` on resourceslices.
    """
    retry = Retry("asking what the API server keeps of ResourceSlices", log)
    while True:
        before = status.value
        try:
            with watchdog.step("asking what the API server keeps", limit=120):
                found = await _ask(client, node_name, driver_name)
        except KubeError as error:
            await trio.sleep(retry.failed(error))
            continue
        retry.recovered()
        if features.set(found):
            _log_missing(found)
        with trio.move_on_after(_ASK_AGAIN_SECONDS * random.uniform(0.5, 1.5)):  # noqa: S311 - spreads load, keeps no secret
            await _until_doubtful(status, before)


async def _until_doubtful(status: Observable[PublisherStatus], before: PublisherStatus) -> None:
    """Wait until another API server may answer than the one that was asked *before*.

    That is possible after a loss of contact, which the publisher notices, and which all nodes have
    together; and when the server broke its word, as one of several behind one address may.
    """
    was, was_lost = before, False
    async for now in status.changes():
        is_away = bool(now.problem) and not now.refused
        was_lost |= is_away or now.watch_restarts != before.watch_restarts
        if _broke_its_word(was, now):
            return
        if was_lost and now.watching and not is_away:
            with trio.move_on_after(random.uniform(0, SPREAD_SECONDS)):  # noqa: S311 - as above
                await status.wait_until(partial(_broke_its_word, now))
            return
        was = now


def _broke_its_word(before: PublisherStatus, now: PublisherStatus) -> bool:
    """Whether the server dropped a field that it had promised to keep, or refuses the slices."""
    return bool(now.dropped - before.dropped) or (now.refused and not before.refused)


async def _ask(client: KubeClient, node_name: str, driver_name: str) -> ServerFeatures:
    """Ask by one dry run of a create if nothing is refused, else by one for each feature.

    Raises:
        KubeError: Unreachable, or a slice without any feature is refused too.
    """

    async def dry_run(*devices: Device) -> Devices:
        sent = ResourceSlice(
            metadata=ObjectMeta(generate_name="probe-"),
            spec=ResourceSliceSpec(
                driver=driver_name,
                node_name=node_name,
                pool=ResourcePool(name=node_name, generation=0, resource_slice_count=1),
                devices=devices,
            ),
        )
        stored = await client.create(sent, dry_run=True)
        return stored.spec.devices

    probes = _probes(driver_name)
    try:
        return _kept_in(await dry_run(*probes))
    except Invalid:
        await dry_run(Device(name="plain"))
    kept: list[Device] = []
    for probe in probes:
        with suppress(Invalid):
            kept += await dry_run(probe)
    return _kept_in(kept)


def _probes(driver_name: str) -> Devices:
    """A device for each feature."""
    taken = DeviceCounterConsumption(counter_set="probe", counters={"probe": Counter(value="1")})
    return (
        *(
            Device(
                name=f"taint-{effect.lower()}",
                taints=(DeviceTaint(key=f"{driver_name}/probe", effect=effect),),
            )
            for effect in TaintEffect
        ),
        Device(name="counters", consumes_counters=(taken,)),
        Device(
            name="shares",
            allow_multiple_allocations=True,
            capacity={
                "probe": DeviceCapacity(value="2", request_policy=CapacityPolicy(default="1"))
            },
        ),
    )


def _kept_in(devices: Collection[Device]) -> ServerFeatures:
    """The features that stored probes still have."""
    effects = {taint.effect for device in devices for taint in device.taints}
    return ServerFeatures(
        taint_effects=frozenset(effect for effect in TaintEffect if effect in effects),
        counters=any(device.consumes_counters for device in devices),
        shares=any(
            device.allow_multiple_allocations
            and any(part.request_policy for part in device.capacity.values())
            for device in devices
        ),
    )


def _log_missing(features: ServerFeatures) -> None:
    refused = sorted(frozenset(TaintEffect) - features.taint_effects)
    if not features.taints:
        log.warning(
            "the API server drops taints of devices (feature gate DRADeviceTaints): "
            "unhealthy NPUs are left out of the ResourceSlice instead"
        )
    elif refused:
        log.warning(
            "the API server refuses taints with some effects: an NPU with a mild fault is "
            "published without its taint, one that no pod may get is left out",
            extra={"effects": refused},
        )
    else:
        log.info("unhealthy NPUs are tainted")
