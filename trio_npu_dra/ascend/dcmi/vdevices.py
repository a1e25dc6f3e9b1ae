"""Calls about how chips may be handed out: dies together, in partitions (vNPUs), or shared.

Calls that the second generation lacks raise `NotSupported`. Calls that change something raise
`NotPermitted` without root on the host or in a privileged container.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from trio_npu_dra.ascend.dcmi import _functions as f
from trio_npu_dra.ascend.dcmi import _signatures as c
from trio_npu_dra.ascend.dcmi._answers import counted, resources, spacious, text
from trio_npu_dra.ascend.dcmi._base import Calls
from trio_npu_dra.ascend.dcmi._codes import INVALID_PARAMETER
from trio_npu_dra.ascend.dcmi.errors import Busy, DcmiError, TemplateRefused
from trio_npu_dra.ascend.dcmi.types import (
    NONE,
    ChipRef,
    MultiDiePolicy,
    Resources,
    VDevice,
    VnpuMode,
    is_blank,
)

MAX_VNPUS: Final = 32
_OFF_OR_ON: Final = (0, 1)
_VDEVICES: Final = 52  # main command VDEV_MNG
_OF_ONE, _TOTAL = 0, 1  # sub commands VDEV_RESOURCE, TOTAL_RESOURCE
_ANY_ID: Final = 0xFFFF_FFFF


class PartitionCalls(Calls):
    """See `Dcmi`."""

    def multi_die_policy(self) -> MultiDiePolicy:
        """Whether containers may get single dies of a card; A3 only."""
        is_independent = self._one_of(_OFF_OR_ON, f.MULTI_DIE_POLICY) == 1
        return MultiDiePolicy.INDEPENDENT if is_independent else MultiDiePolicy.UNION

    # --- partitions -------------------------------------------------------------------------------

    def vnpus(self, chip: ChipRef) -> tuple[int, ...]:
        """Ids of the vNPUs that the chip is split into, none twice."""
        info = self._total(chip)
        ids = info.vdev_id[: info.vdev_num]
        if any(map(is_blank, ids)):
            raise DcmiError(0, self._name(f.DEVICE_INFO), "ids of vNPUs that are not written")
        return tuple(dict.fromkeys(ids))

    def total_resources(self, chip: ChipRef) -> Resources:
        """The resources of the chip for vNPUs, used or not.

        Some chips report them only while they are split (DCMI reference): `NotSupported` before. A
        910B can have more AI CPUs while it is split.
        """
        info = self._total(chip)
        return resources(info.computing, info.media)

    def vdevice(self, chip: ChipRef, vdev_id: int) -> VDevice:
        """One vNPU of the chip.

        Raises:
            IdUnknown: The chip has no such vNPU.
        """
        query = spacious(c.dcmi_vdev_query_stru)
        query.vdev_id = vdev_id
        info = self._device_info(chip, (_VDEVICES, _OF_ONE), query).query_info
        return VDevice(
            id=vdev_id,
            template=text(info.name),
            in_use=info.is_container_used == 1,
            resources=resources(info.computing, info.media),
        )

    def create_vdevice(self, chip: ChipRef, template: str, vdev_id: int | None = None) -> int:
        """Split a vNPU off the chip.

        Args:
            chip: The chip.
            template: The vendor's name of what the vNPU gets; each kind of board has its own.
            vdev_id: The id of the vNPU; the library chooses if it is None.

        Returns:
            The id of the vNPU.

        Raises:
            Busy: The chip is in use as a whole.
            TemplateRefused: The board has no such template, the chip not that much left,
                or the id is taken or not one of this chip's.
        """
        wanted = c.dcmi_create_vdev_res_stru()
        wanted.vdev_id = _ANY_ID if vdev_id is None else vdev_id
        wanted.vfg_id = _ANY_ID
        wanted.template_name = template.encode()
        out: Any = spacious(c.dcmi_create_vdev_out)
        try:
            self._call(f.CREATE_VDEVICE, chip, ctypes.byref(wanted), ctypes.byref(out))
        except DcmiError as error:
            if error.code != INVALID_PARAMETER:
                raise
            meaning = (
                f"no room for a {template}, or the installed Ascend driver has no such template; "
                "npu-smi info -t template-info lists those that it has"
            )
            raise TemplateRefused(error.code, error.function, meaning) from None
        return int(out.vdev_id)

    def destroy_vdevice(self, chip: ChipRef, vdev_id: int) -> None:
        """Give a vNPU back to the chip.

        Raises:
            Busy: A container uses it. The library then returns its code for a wrong argument.
            IdUnknown: The chip has no such vNPU.
        """
        try:
            self._call(f.DESTROY_VDEVICE, chip, vdev_id)
        except DcmiError as error:
            if error.code != INVALID_PARAMETER:
                raise
            raise Busy(error.code, error.function, f"a container uses vNPU {vdev_id}") from None

    def vnpu_mode(self) -> VnpuMode:
        """What the node's vNPUs are for; one for virtual machines has no device node."""
        is_vm = self._one_of(_OFF_OR_ON, f.VDEVICE_MODE) == 1
        return VnpuMode.VIRTUAL_MACHINE if is_vm else VnpuMode.CONTAINER

    # --- shares ----------------------------------------------------------------------------------

    def device_share(self, chip: ChipRef) -> bool:
        """Whether several containers may open the chip at once."""
        return self._one_of(_OFF_OR_ON, f.DEVICE_SHARE, chip) == 1

    def set_device_share(self, chip: ChipRef, *, enabled: bool) -> None:
        """Let several containers open the chip at once, or not; sets all dies of an A3 card.

        A reboot ends it.

        Raises:
            Busy: The chip is in use.
        """
        self._call(f.SET_DEVICE_SHARE, chip, int(enabled))

    def _total(self, chip: ChipRef) -> Any:
        info = spacious(c.dcmi_soc_total_resource)
        info.vdev_num = NONE  # else a chip had no vNPUs if the library did not write it
        self._device_info(chip, (_VDEVICES, _TOTAL), info)
        counted(ctypes.c_int(info.vdev_num), MAX_VNPUS, self._name(f.DEVICE_INFO))
        return info
