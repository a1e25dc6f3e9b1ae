"""The bytes of a state file: a profile's board before anything has happened."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from pathlib import Path

from trio_npu_dra.lab.simulator.layout import (
    BOARD,
    DEVICE,
    FACTS,
    MAGIC,
    MAX_DEVICES,
    NONE,
    RULE,
    UTILIZATIONS,
    VERSION,
    Value,
)
from trio_npu_dra.lab.simulator.profile import DeviceFacts, Profile
from trio_npu_dra.lab.simulator.state_file import device_position, element

# DCMI's numbers for the links between chips, the kinds of dies, and the multi-die policies.
_LINK_NAMES = ("self", "sys", "phb", "hccs", "pxb", "pix", "sio", "hccs-switch", "ub", "unknown")
_LINKS = {name: number for number, name in enumerate(_LINK_NAMES)}
_SELF = 0
_DIES = {"vdie": 1, "ddie": 2}
_POLICIES = {"union": 0, "independent": 1}
_ECC_KINDS = {"ddr": 0, "hbm": 2}
_HCCS_LANES_FINE = 3
_NOT_SUPPORT = -8255


def initial_state(profile: Profile, dev_root: Path) -> bytes:
    """The whole state file.

    Args:
        profile: The board.
        dev_root: The folder whose `davinci<N>` nodes count, where it exists; `/dev` elsewhere.
    """
    state = bytearray(BOARD.size)
    facts = FACTS.pack(_facts(profile, dev_root))
    state[: len(facts)] = facts
    topology = BOARD.fields["topology"]
    state[topology.offset : topology.offset + topology.size] = topology.encode(_topology(profile))
    for index, function in enumerate(profile.unsupported):
        place = element(BOARD, "rules", index)
        state[place : place + RULE.size] = RULE.pack(
            {"function": function, "physical_id": -1, "code": _NOT_SUPPORT, "active": 1}
        )
    for index, device in enumerate(profile.devices):
        place = device_position(index)
        state[place : place + DEVICE.size] = DEVICE.pack(_device(profile, device))
    return bytes(state)


def _facts(profile: Profile, dev_root: Path) -> dict[str, Value]:
    board, chip, pod = profile.board, profile.chip, profile.super_pod
    policy = board.multi_die_policy
    return {
        "magic": list(MAGIC),
        "version": VERSION,
        "size": BOARD.size,
        "device_count": len(profile.devices),
        "generation": profile.generation,
        "has_mcu": int(board.mcu),
        "has_topology": int(profile.links is not None),
        "power_by_mcu": int(board.power_by == "mcu"),
        "ecc_kinds": sum(1 << _ECC_KINDS[kind] for kind in chip.ecc),
        "ai_cpus": chip.ai_cpus,
        "vnpu_details": int(board.vnpu_details),
        "die_type": _DIES[board.die_type],
        "multi_die_policy": NONE if policy is None else _POLICIES[policy],
        "vnpu_recover": 1,
        "board_id": board.board_id,
        "pcb_id": board.pcb_id,
        "bom_id": board.bom_id,
        "mainboard_id": NONE if board.mainboard_id is None else board.mainboard_id,
        "pci_vendor": profile.pci.vendor,
        "pci_device": profile.pci.device,
        "pci_subvendor": profile.pci.subvendor,
        "pci_subdevice": profile.pci.subdevice,
        "super_pod_size": pod.size if pod else NONE,
        "super_pod_id": pod.id if pod else 0,
        "super_pod_type": pod.type if pod else 0,
        "server_index": pod.server_index if pod else 0,
        "chassis_id": pod.chassis_id if pod else 0,
        "driver_version": profile.driver_version,
        "dcmi_version": profile.dcmi_version,
        "product_type": board.product_type or "",
        "chip_type": chip.type,
        "chip_name": chip.name,
        "chip_version": chip.version,
        "npu_name": chip.npu_name,
        "elabel_product": profile.elabel.product,
        "elabel_model": profile.elabel.model,
        "elabel_manufacturer": profile.elabel.manufacturer,
        "elabel_date": profile.elabel.date,
        "dev_root": str(dev_root),
    }


def _device(profile: Profile, device: DeviceFacts) -> dict[str, Value]:
    chip = profile.chip
    return {
        "physical_id": device.physical_id,
        "card_id": device.card_id,
        "device_id": device.device_id,
        "slot_id": device.card_id,
        "die": [int(word, 16) for word in device.die_id],
        "aicore_count": chip.ai_cores,
        "sdid": device.sdid or 0,
        **address_values(device.ip),
        "mac": [*b"\x02N", *(device.ip.ip.packed if device.ip else bytes(4))],
        "cpu_list": profile.cpus.get(device.numa_node or 0, ""),
        "serial_number": device.serial_number or f"SIM{device.physical_id:08d}",
        "forced_health": NONE,
        "network_health": 0 if chip.network_health else NONE,
        "link_up": 1 if chip.network_health else NONE,
        "hccs_status": _HCCS_LANES_FINE if profile.hccs else NONE,
        "temperature": chip.idle_temperature,
        "power": chip.idle_power_deciwatt,
        "utilization": [0 if kind in chip.utilization else NONE for kind in range(UTILIZATIONS)],
        **_pci_place(device.pci),
        **_memory(profile, device),
    }


def address_values(
    address: IPv4Interface | IPv6Interface | None,
    gateway: IPv4Address | IPv6Address | None = None,
) -> dict[str, Value]:
    """What a device has of the address of its RoCE port."""
    if address is None:
        return {"ip_version": 0}
    prefix = bytes([address.network.prefixlen])
    return {
        "ip_version": address.version,
        "ip": _padded(address.ip.packed),
        "ip_mask": _padded(address.netmask.packed if address.version == 4 else prefix),
        "gateway": _padded(gateway.packed if gateway else b""),
    }


def _padded(address: bytes) -> list[int]:
    return list(address.ljust(16, b"\0"))


def _pci_place(address: str) -> dict[str, Value]:
    if not address:
        return {"pci_domain": NONE}
    names = ("pci_domain", "pci_bus", "pci_device", "pci_function")
    return dict(zip(names, (int(part, 16) for part in re.split("[:.]", address)), strict=True))


def _memory(profile: Profile, device: DeviceFacts) -> dict[str, Value]:
    values: dict[str, Value] = {}
    hbm, ddr = profile.chip.hbm, profile.chip.ddr
    if hbm is not None:
        values["hbm_size"] = device.memory_mb or hbm.size_mb
        values["hbm_used"] = hbm.idle_mb
        values["hbm_frequency"] = hbm.frequency_mhz
        values["hbm_temperature"] = profile.chip.idle_temperature
    if ddr is not None:
        size = device.memory_mb or ddr.size_mb
        values["ddr_size"] = size
        values["ddr_available"] = size - ddr.idle_mb
        values["ddr_frequency"] = ddr.frequency_mhz
    return values


def _topology(profile: Profile) -> list[int]:
    matrix = [0] * (MAX_DEVICES * MAX_DEVICES)
    if profile.links is None:
        return matrix
    between = _LINKS[profile.links.between_cards]
    within = _LINKS[profile.links.within_card or profile.links.between_cards]
    group = profile.links.group_size or MAX_DEVICES
    for row, one in enumerate(profile.devices):
        for column, other in enumerate(profile.devices):
            link = within if one.card_id == other.card_id else between
            if one.physical_id // group != other.physical_id // group:
                link = _LINKS[profile.links.between_groups]
            matrix[row * MAX_DEVICES + column] = _SELF if row == column else link
    return matrix
