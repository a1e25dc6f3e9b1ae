"""What is wrong with one device: taints, since when, Events and holders; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.base.errors import DriverError
from trio_npu_dra.tools.cluster.fleet import DeviceRow, NodeRow
from trio_npu_dra.tools.cluster.said import Said

_EVENTS = 10


class NoSuchDevice(DriverError):
    """No device, or more than one, has the name that a person gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is wrong with one device.

    Attributes:
        node: Where it is.
        row: The device.
        events: The node's Events about the device, the newest last.
        doubts: What may not be read.
    """

    node: str
    row: DeviceRow
    events: tuple[Event, ...]
    doubts: tuple[Said, ...]


def find(nodes: Sequence[NodeRow], words: str) -> tuple[str, DeviceRow]:
    """The device of that name, `npu-3` or `n1/npu-3`, and its node.

    Raises:
        NoSuchDevice: None or several have it; the message says what to do.
    """
    place, _, name = words.rpartition("/")
    found = [
        (node.node, row)
        for node in nodes
        for row in node.devices
        if row.device.name == name and place in {"", node.node}
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NoSuchDevice(
            f"no device {words} is published, and no partition of that name is held: "
            "`kubectl npu -o wide` lists them"
        )
    places = ", ".join(f"{node}/{name}" for node, _ in found[:5])
    raise NoSuchDevice(f"{len(found)} nodes have a device {name}; say which: {places}")


def diagnosis(
    node: str, row: DeviceRow, events: Iterable[Event], doubts: tuple[Said, ...]
) -> Diagnosis:
    """What is wrong with a device, given all Events of its node."""
    name = row.device.name
    about = [
        event for event in events if name in (word.strip(":;,.") for word in event.message.split())
    ]
    about.sort(key=lambda event: event.when)
    return Diagnosis(node=node, row=row, events=tuple(about[-_EVENTS:]), doubts=doubts)
