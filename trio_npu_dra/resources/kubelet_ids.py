"""Which chip the kubelet means by a device's id, where somebody else chose the chip.

The kubelet picks ids of free devices, and a scheduler may have picked other chips for the pod. Then
the two chips change ids: the id that the kubelet has given out stands for the chip that the pod
got, and the id of that chip for the other one, which is free. So each id stands for one chip at any
time, one in use for the chip that its pod has; the health and counts that the kubelet sees stay
true.

The kubelet remembers ids over a reboot of the node, so what has changed is kept in a file that
outlasts it too. So are the names of resources that only a flag tells: pods keep what they have of
one when the flag has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter
from pydantic_core import to_json

from trio_npu_dra import storage
from trio_npu_dra.errors import StorageError
from trio_npu_dra.resources.device import ResourceDevice
from trio_npu_dra.resources.names import DeviceId, device_id, is_huaweis, parse_id

log = logging.getLogger(__name__)

FILE: Final = "device-plugin-ids.json"

_FORM: Final = TypeAdapter(dict[str, dict[int, int]])


class KubeletIds:
    """The ids of one node; one instance at a time uses them, that which serves the resources.

    Args:
        folder: The driver's own, where the file is.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._chips = _read(self._path)

    def id_of(self, device: ResourceDevice) -> str:
        """The id that stands for a device."""
        if device.part is not None:
            return device.id
        return self._of_chip(device.resource, device.chip.physical_id)

    def _of_chip(self, resource: str, number: int) -> str:
        """The id that stands for a whole chip, by the chip's physical id."""
        changed = self._chips.get(resource, {})
        own = next((id_ for id_, chip in changed.items() if chip == number), number)
        return device_id(resource, own)

    def device_of(self, resource: str, id_: str) -> DeviceId | None:
        """What an id stands for; None if it is of another form. Parts of a chip keep their ids."""
        told = parse_id(resource, id_)
        if told is None or not told.is_whole:
            return told
        return DeviceId(physical_id=self._meant(resource, told.physical_id))

    def change(self, resource: str, ids: Sequence[str], numbers: Sequence[int]) -> None:
        """Let ids stand for chips from now on; those that stand for one of them already still do.

        Args:
            resource: The resource.
            ids: Ids that the kubelet gives out.
            numbers: Physical ids of as many chips, none of which has another id in use.

        Raises:
            StorageError: The file cannot be written, and nothing has changed; or it cannot be
                synced, and a power cut may bring back what was.
        """
        own_ids = [_number(resource, id_) for id_ in ids]
        now = {own: self._meant(resource, own) for own in own_ids}
        moving = [own for own, number in now.items() if number not in numbers]
        wanted = [number for number in numbers if number not in now.values()]
        changed = dict(self._chips.get(resource, {}))
        for own, number in zip(moving, wanted, strict=True):
            other = _number(resource, self._of_chip(resource, number))
            changed[own], changed[other] = number, now[own]
        changed = {a: b for a, b in changed.items() if a != b}
        if changed != self._chips.get(resource, {}):
            self._write({**self._chips, resource: changed})

    def note(self, resource: str) -> None:
        """Note that devices of a resource were given out.

        Raises:
            StorageError: The file cannot be written.
        """
        if not is_huaweis(resource) and resource not in self._chips:
            self._write({**self._chips, resource: {}})

    def is_ours(self, resource: str) -> bool:
        """Whether its ids stand for chips: one of Huawei's, or one that was ever given out here."""
        return is_huaweis(resource) or resource in self._chips

    def _write(self, chips: Mapping[str, Mapping[int, int]]) -> None:
        storage.write_atomic(self._path, to_json(chips) + b"\n")
        self._chips = chips  # which the file says, whether its name is synced or not
        storage.sync_folder(self._path.parent)

    def _meant(self, resource: str, number: int) -> int:
        return self._chips.get(resource, {}).get(number, number)


def _number(resource: str, id_: str) -> int:
    """The number in an id of our own form."""
    told = parse_id(resource, id_)
    assert told is not None, f"{id_} was made by device_id"
    return told.physical_id


def _read(path: Path) -> Mapping[str, Mapping[int, int]]:
    """What the file says; nothing if there is none, or none that makes sense."""
    try:
        found = _FORM.validate_json(storage.read_bytes(path) or b"{}")
        problem = "" if all(map(_is_clear, found.values())) else "two ids stand for one chip"
    except (ValueError, StorageError) as error:
        problem = str(error)
    if problem:
        log.error(
            "which chips the kubelet means by its ids cannot be read: each id counts as the chip's "
            "own, and pods whose chips were chosen for them may be taken to have others",
            extra={"path": str(path), "problem": problem},
        )
        return {}
    return found


def _is_clear(changed: Mapping[int, int]) -> bool:
    """Whether each id that has changed stands for a chip of its own."""
    return changed.keys() == set(changed.values())
