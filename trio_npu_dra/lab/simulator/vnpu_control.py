"""Splits chips of a simulated board into vNPUs, as an administrator does, and reboots the node."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.lab.simulator.build import NPU_SMI
from trio_npu_dra.lab.simulator.handle import BoardHandle
from trio_npu_dra.lab.simulator.host_tree import DRIVER, TOOLS
from trio_npu_dra.lab.simulator.layout import DEVICE, FACTS, VNPU
from trio_npu_dra.lab.simulator.state_file import element

_LIBRARIES: Final = DRIVER / "lib64"
_MADE: Final = re.compile(r"Vnpu ID\s*: (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vnpu:
    """A partition of a chip.

    Attributes:
        id: Its number; N of `/dev/vdavinciN`.
        template: What it was made by.
        in_use: Whether a container has it open.
    """

    id: int
    template: str
    in_use: bool


class VnpuControl(BoardHandle):
    """The vNPUs of the board's chips.

    Chips are split by the board's own `npu-smi`, so that the rules of the library count: what it
    refuses is a `ConfigError` with its code. To let `dcmi_create_vdevice` and
    `dcmi_set_destroy_vdevice` take long or fail there are the rules (`set_delay`,
    `set_return_code`).
    """

    def vnpus(self, device: int) -> tuple[Vnpu, ...]:
        """The partitions of a chip, in the order in which they were made."""
        with self._file.locked():
            return tuple(
                Vnpu(
                    id=self._file.number(VNPU, place, "id"),
                    template=str(self._file.get(VNPU, place, "template_name")),
                    in_use=self._file.number(VNPU, place, "in_use") == 1,
                )
                for place in self._places(device)
            )

    def create_vnpu(self, device: int, template: str, vnpu: int | None = None) -> int:
        """Create a vNPU on a chip manually; its id, the lowest free one if none is wanted.

        Raises:
            ConfigError: The library refuses; the message has its code.
        """
        wanted = [] if vnpu is None else ["-v", str(vnpu)]
        told = self._npu_smi("create-vnpu", device, "-f", template, *wanted)
        made = _MADE.search(told)
        assert made, told
        return int(made[1])

    def destroy_vnpu(self, device: int, vnpu: int) -> None:
        """Destroy a vNPU manually.

        Raises:
            ConfigError: The library refuses; the message has its code.
        """
        self._npu_smi("destroy-vnpu", device, "-v", str(vnpu))

    def use_vnpu(self, device: int, vnpu: int, *, in_use: bool = True) -> None:
        """Let a container open a vNPU, or close it; an open one cannot be destroyed.

        Raises:
            ConfigError: The chip has no such partition.
        """
        with self._file.locked():
            for place in self._places(device):
                if self._file.number(VNPU, place, "id") == vnpu:
                    self._file.put(VNPU, place, "in_use", int(in_use))
                    return
        raise ConfigError(f"device {device} has no vNPU {vnpu}")

    def set_vnpu_mode(self, *, for_vms: bool) -> None:
        """Set whom new vNPUs are for; those of virtual machines have no device node."""
        self._put_fact("vnpu_mode", int(for_vms))

    def set_vnpu_recovery(self, *, enabled: bool) -> None:
        """Set whether vNPUs come back after a reboot, as they do at first."""
        self._put_fact("vnpu_recover", int(enabled))

    def set_privileged(self, *, privileged: bool) -> None:
        """Set whether callers have the rights to change something; without them they get -8002."""
        self._put_fact("unprivileged", int(not privileged))

    def reboot(self) -> None:
        """Do to vNPUs and flags what a reboot of the node does; processes of the library go on.

        Nothing uses a chip any more and none is shared. vNPUs come back unless that was switched
        off.
        """
        with self._file.locked():
            recovers = self._file.number(FACTS, 0, "vnpu_recover") == 1
            for device in self.devices:
                self._put_locked(device, process_count=0, share_enable=0)
                for place in self._places(device):
                    self._file.put(VNPU, place, "in_use", 0)
                    if not recovers:
                        self._remove_node(self._file.number(VNPU, place, "id"))
                if not recovers:
                    self._put_locked(device, vnpu_count=0)

    def _places(self, device: int) -> list[int]:
        """Where the records of a chip's partitions are; with the file locked."""
        base = self._position(device)
        count = self._file.number(DEVICE, base, "vnpu_count")
        return [element(DEVICE, "vnpus", index, base) for index in range(count)]

    def _put_fact(self, name: str, value: int) -> None:
        with self._file.locked():
            self._file.put(FACTS, 0, name, value)

    def _remove_node(self, vnpu: int) -> None:
        folder = Path(str(self._file.get(FACTS, 0, "dev_root")))
        (folder / f"vdavinci{vnpu}").unlink(missing_ok=True)

    def _npu_smi(self, what: str, device: int, *arguments: str) -> str:
        root = self._path.parents[len(_LIBRARIES.parts)]
        card, chip = (str(self.read(device, name)) for name in ("card_id", "device_id"))
        command = [str(root / TOOLS / NPU_SMI), "set", "-t", what, "-i", card, "-c", chip]
        run = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise ConfigError(
                f"{' '.join([*command[1:], *arguments])}: {run.stdout.strip() or run.stderr}"
            )
        return run.stdout
