"""Entries for tests, with chips of a 910B server or of an A3."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_interface

from trio_npu_dra.agent.config.model import EffectiveConfig
from trio_npu_dra.agent.holds.entry import Allocated, Entry, EntryState, HeldDevice
from trio_npu_dra.agent.holds.hold import Hold, Holder, HolderKind
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.model import Chip, ChipFamily, ChipNetwork
from trio_npu_dra.ascend.partition import Partition

POOL = "node-1"


def chip(number: int, family: ChipFamily = ChipFamily.ASCEND_910B) -> Chip:
    """A chip; two of a card on an A3."""
    per_card = 2 if family is ChipFamily.ASCEND_910_A3 else 1
    return Chip(
        ref=ChipRef(number // per_card, number % per_card),
        physical_id=number,
        logic_id=number,
        card_id=number // per_card,
        device_id=number % per_card,
        family=family,
        chip_name="910B4",
        uuid=f"DIE-{number}",
        pci_bus_id="0000:c1:00.0",
    )


def held(device: str, *numbers: int) -> HeldDevice:
    """A device of some chips; of several it is a module."""
    family = ChipFamily.ASCEND_910_A3 if len(numbers) > 1 else ChipFamily.ASCEND_910B
    nodes = [f"/dev/davinci{number}" for number in numbers]
    return HeldDevice(
        device=device,
        family=family,
        nodes=dict(zip(nodes, nodes, strict=True)),
        chips=tuple(chip(number, family) for number in numbers),
    )


def allocated(
    device: str, *requests: str, admin_access: bool = False, share_id: str | None = None
) -> Allocated:
    """A device as the scheduler gave it."""
    return Allocated(
        requests=requests or ("npu",),
        pool=POOL,
        device=device,
        admin_access=admin_access,
        share_id=share_id,
    )


def holder(uid: str) -> Holder:
    """Claim `default/<uid>`."""
    return Holder(kind=HolderKind.CLAIM, namespace="default", name=uid, uid=uid)


def entry(uid: str, *numbers: int, admin_access: bool = False) -> Entry:
    """A claim that is prepared with NPUs; with NPU 0 if none is named."""
    numbers = numbers or (0,)
    return Entry(
        holder=holder(uid),
        state=EntryState.READY,
        allocation=tuple(
            allocated(f"npu-{number}", admin_access=admin_access) for number in numbers
        ),
        devices=tuple(held(f"npu-{number}", number) for number in numbers),
        edits={"cdiVersion": "0.5.0"},
    )


def reached(uid: str, address: str, gateway: str) -> Entry:
    """A claim whose NPU 0 has an address."""
    network = ChipNetwork(addresses=(ip_interface(address),), gateway=ip_address(gateway), mac="m")
    device = held("npu-0", 0)
    chips = (replace(device.chips[0], network=network),)
    return replace(entry(uid), devices=(device._replace(chips=chips),))


def configured(uid: str, config: EffectiveConfig) -> Entry:
    """A claim whose NPU 0 has a config."""
    plain = entry(uid)
    return replace(
        plain,
        allocation=tuple(given._replace(config=config) for given in plain.allocation),
        devices=tuple(device._replace(config=config) for device in plain.devices),
    )


def module(uid: str, card: int = 1) -> Entry:
    """A claim that is prepared with a module of two dies."""
    device = f"module-{card}"
    return Entry(
        holder=holder(uid),
        state=EntryState.READY,
        allocation=(allocated(device),),
        devices=(held(device, 2 * card, 2 * card + 1),),
        edits={"cdiVersion": "0.5.0"},
    )


def of_partition(uid: str, vnpu: int = 100, number: int = 0) -> Entry:
    """A claim that is prepared with a vNPU of an NPU."""
    device = f"npu-{number}-vnpu-{vnpu}"
    whole = held(f"npu-{number}", number)
    return Entry(
        holder=holder(uid),
        state=EntryState.READY,
        allocation=(allocated(device),),
        devices=(
            whole._replace(
                device=device,
                nodes={f"/dev/davinci{vnpu}": f"/dev/vdavinci{vnpu}"},
                partition=Partition(template="vir05_1c_8g", vnpu=vnpu),
                chip_node=f"/dev/davinci{number}",
            ),
        ),
        edits={"cdiVersion": "0.5.0"},
    )


def hold(
    uid: str,
    *numbers: int,
    observer: bool = False,
    share: str | None = None,
    device: str = "npu",
    partition: Partition | None = None,
    kind: HolderKind = HolderKind.CLAIM,
) -> Hold:
    """A device of the chips *numbers*."""
    return Hold(
        holder=holder(uid)._replace(kind=kind),
        device=device,
        nodes=frozenset(f"/dev/davinci{number}" for number in numbers),
        observer=observer,
        share=share,
        partition=partition,
    )
