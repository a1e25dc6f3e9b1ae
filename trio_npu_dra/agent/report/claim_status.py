"""What the status of a claim says of this driver's devices, and what it should say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from trio_npu_dra.agent.devices.npu_status import network_data, npu_status
from trio_npu_dra.agent.holds.entry import Allocated, Entry, HeldDevice
from trio_npu_dra.agent.report.device_health import joined
from trio_npu_dra.ascend.model import Board, Chip, ChipHealth
from trio_npu_dra.ascend.offers import Offer, OfferKind
from trio_npu_dra.ascend.root_info import NO_LEVELS, Levels
from trio_npu_dra.kit.api.objects import Condition, DeviceStatus, ResourceClaim, rfc3339
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.base.observable import Observable

Statuses: TypeAlias = tuple[DeviceStatus, ...]
"""All that this driver says in the status of one claim."""

Reported: TypeAlias = Observable[Mapping[str, Statuses]]
"""What the API server has of it, by the claim's UID; a claim that was not read is absent."""

READY: Final = "Ready"
MESSAGE_LIMIT: Final = 1024

_READY: Final[Mapping[HealthState, tuple[str, str]]] = {
    HealthState.HEALTHY: ("True", "Healthy"),
    HealthState.UNHEALTHY: ("False", "Unhealthy"),
    HealthState.UNKNOWN: ("Unknown", "Unmonitored"),
}
"""Status and reason of the condition."""

_AWAY: Final = ChipHealth(unmonitored="the node does not have it any more")


def note_status(claim: ResourceClaim, reported: Reported, *, driver_name: str) -> None:
    """Note what a claim that was read says of our devices."""
    ours = tuple(one for one in claim.status.devices if one.driver == driver_name)
    reported.set({**reported.value, claim.metadata.uid or "": ours})


def device_statuses(
    entry: Entry, board: Board, levels: Levels = NO_LEVELS, *, driver_name: str
) -> Statuses:
    """The devices of a claim by the newest facts; devices of admin access have no status.

    The condition has no time yet (`stamped`).
    """
    by_node = {chip.device_node: chip for chip in board.chips}
    held = {device.device: device for device in entry.devices}
    return tuple(
        _status(given, _offer(held[given.device], by_node), levels, driver_name)
        for given in entry.allocation
        if not given.admin_access
    )


def stamped(wanted: Iterable[DeviceStatus], known: Iterable[DeviceStatus], now: float) -> Statuses:
    """*wanted* with the times of its conditions: the *known* ones, or *now* if they have changed.

    *now* is in seconds since 1970.
    """
    before = {_key(status): status for status in known}
    return tuple(_stamped(status, before.get(_key(status)), now) for status in wanted)


def say_the_same(ones: Iterable[DeviceStatus], others: Iterable[DeviceStatus]) -> bool:
    """Whether no write is needed to make one of the other: reasons and messages are left out."""
    return {_key(one): _facts(one) for one in ones} == {_key(one): _facts(one) for one in others}


def _status(given: Allocated, offer: Offer, levels: Levels, driver_name: str) -> DeviceStatus:
    """The status of a device; a part of an NPU has no address of its own."""
    is_npu = offer.kind is OfferKind.NPU
    if given.share_id is not None:
        chips = tuple(replace(chip, network=None) for chip in offer.chips)
        offer = replace(offer, chips=chips)
    return DeviceStatus(
        driver=driver_name,
        pool=given.pool,
        device=given.device,
        share_id=given.share_id,
        conditions=(_ready(offer),),
        network_data=network_data(offer.chips[0]) if is_npu else None,
        data=npu_status(
            offer, levels.get(offer.chips[0].physical_id, ()) if is_npu else ()
        ).to_wire(),
    )


def _offer(held: HeldDevice, by_node: Mapping[str, Chip]) -> Offer:
    """A held device with the newest facts of its chips."""
    chips = tuple(_newest(chip, by_node.get(chip.device_node)) for chip in held.chips)
    whole = OfferKind.MODULE if len(chips) > 1 else OfferKind.NPU
    kind = OfferKind.VNPU if held.partition else whole
    return Offer(name=held.device, kind=kind, chips=chips, partition=held.partition)


def _newest(held: Chip, found: Chip | None) -> Chip:
    is_same = found is not None and not found.has_other_die(held.uuid)
    return found if found is not None and is_same else replace(held, health=_AWAY)


def _ready(offer: Offer) -> Condition:
    health = offer.health
    status, reason = _READY[health.state]
    # A message of a healthy NPU would be about its port, and grow old.
    message = "" if status == "True" else joined(health.troubles, MESSAGE_LIMIT)
    return Condition(type=READY, status=status, reason=reason, message=message)


def _key(status: DeviceStatus) -> tuple[str, str, str, str | None]:
    return status.driver, status.pool, status.device, status.share_id


def _facts(status: DeviceStatus) -> tuple[object, ...]:
    ready = _condition(status)
    return ready and ready.status, status.network_data, status.data


def _condition(status: DeviceStatus) -> Condition | None:
    return next((one for one in status.conditions if one.type == READY), None)


def _stamped(status: DeviceStatus, before: DeviceStatus | None, now: float) -> DeviceStatus:
    is_now, was = _condition(status), _condition(before) if before is not None else None
    assert is_now is not None, "`device_statuses` gives one"
    is_old = was is not None and was.status == is_now.status
    time = was.last_transition_time if was is not None and is_old else rfc3339(now)
    ready = is_now.model_copy(update={"last_transition_time": time})
    return status.model_copy(update={"conditions": (ready,)})
