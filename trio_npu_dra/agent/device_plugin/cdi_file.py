"""The CDI file of device plugin devices: one for all of them, each with one name for ever, its id.

The kubelet keeps an answer to Allocate in its checkpoint, and after a restart of the node or of a
container it uses the names in it without asking again; nor does it tell when a pod has ended. So
the file has all devices that may be given out or are in use. A runtime that has read an earlier
file gives the same device nodes for a name: they follow from the physical id in it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel
from pydantic_core import from_json

from trio_npu_dra.agent.device_plugin.names import parse_cdi_name
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.holds.entry import HeldDevice
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.cdi import write_spec
from trio_npu_dra.kit.base.errors import DriverError, StorageError

log = logging.getLogger(__name__)

_CLASS: Final = "device"


class _ListedDevice(BaseModel):
    name: str


class _ListedDevices(BaseModel):
    devices: tuple[_ListedDevice, ...] = ()


def devices_before(folder: CdiFolder) -> dict[int, tuple[str, ...]]:
    """The names of an earlier instance's devices by physical ids; nothing without a file."""
    try:
        spec = from_json(storage.read_bytes(folder.devices_path) or b"{}")
        listed = _ListedDevices.model_validate(spec)
    except (ValueError, StorageError) as error:
        log.warning(
            "CDI file of the devices cannot be read and is written again",
            extra={"path": str(folder.devices_path), "problem": str(error)},
        )
        return {}
    names: dict[int, tuple[str, ...]] = {}
    for device in listed.devices:
        if (parsed := parse_cdi_name(device.name)) is not None:
            names[parsed.physical_id] = (*names.get(parsed.physical_id, ()), device.name)
    return names


class DevicesFile:
    """The file of one node, in the folder of the claims' files."""

    def __init__(self, folder: CdiFolder) -> None:
        self._folder = folder
        self._problem = ""

    def name(self, id_: str) -> str:
        """The qualified CDI name of a device."""
        return f"{self._folder.driver_name}/{_CLASS}={id_}"

    def write(self, devices: Mapping[str, HeldDevice]) -> None:
        """Make the file list just these devices, by id; without devices there is no file.

        Raises:
            StorageError: The disk is full, read-only, or fails.
            HostFileMissing: The host lacks what containers need.
        """
        path = self._folder.devices_path
        if not devices:
            if path.exists():
                storage.remove(path)
                log.info("CDI file without devices removed", extra={"path": str(path)})
            return
        spec = self._folder.render("", list(devices.values()))  # as for a claim, but for the names
        spec["kind"] = f"{self._folder.driver_name}/{_CLASS}"
        for id_, device in zip(devices, spec["devices"], strict=True):
            device["name"] = id_
        if write_spec(path, spec):
            log.info("CDI file written", extra={"path": str(path), "devices": list(devices)})

    def keep(self, devices: Mapping[str, HeldDevice]) -> bool:
        """Write the file, and return whether that worked; log a problem once while it lasts."""
        problem = ""
        try:
            self.write(devices)
        except DriverError as error:
            problem = str(error)
        if problem and problem != self._problem:
            log.error("CDI file of the devices cannot be written", extra={"problem": problem})
        self._problem = problem
        return not problem
