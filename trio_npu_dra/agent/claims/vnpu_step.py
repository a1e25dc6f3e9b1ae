"""The step `vnpu`: cuts partitions off chips for a claim, and removes them.

The record has a vNPU's id before the vNPU is made, and until it is removed. So a crash in between
leaves no unknown vNPU, and a vNPU that no record names is not the driver's: it is never removed.
For that the id is chosen here, not by the library (docs/decisions/vnpu-ids.md).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from typing import Final

import trio

from trio_npu_dra.agent.claims.cdi import CdiFolder
from trio_npu_dra.agent.claims.step_locks import StepLocks
from trio_npu_dra.agent.holds.encoding import with_devices
from trio_npu_dra.agent.holds.entry import Entry, HeldDevice
from trio_npu_dra.agent.holds.hold import HolderKind, vnpus_of
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.dcmi.errors import Busy, DcmiError
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.partition import vnpu_node
from trio_npu_dra.ascend.splits import split_of
from trio_npu_dra.ascend.vnpus import Vnpus
from trio_npu_dra.kit.base.errors import ClaimError, ClaimUnavailable, DevicesUnknown

log = logging.getLogger(__name__)

_SEEN_SECONDS: Final = 10.0  # for the Board to be read anew; a chip that hangs delays it


@dataclass(frozen=True, slots=True, kw_only=True)
class VnpuStep:
    """Cuts partitions for claims; fulfils `claims.steps.Step`.

    One task of the node at a time is at the partitions of a chip, so that no two choose one id.

    Attributes:
        ledger: Gets the ids.
        cdi: Tells what containers get, once the ids are known.
        vnpus: The vNPUs of the node.
        host: Has their device nodes.
    """

    ledger: Ledger
    cdi: CdiFolder
    vnpus: Vnpus
    host: Host

    @property
    def name(self) -> str:
        """What records call it."""
        return "vnpu"

    def is_needed(self, entry: Entry) -> bool:
        """Whether a claim has a partition that is cut on demand."""
        return any(map(_is_ours, entry.devices))

    def is_lost(self, entry: Entry) -> bool:
        """Whether a partition is gone, or another one has its id."""
        return any(map(self._is_lost, filter(_is_ours, entry.devices)))

    def _is_lost(self, device: HeldDevice) -> bool:
        partition = device.partition
        if partition is None or partition.vnpu is None:
            return True
        template = self.vnpus.known(device.chip_node).get(partition.vnpu, partition.template)
        return template != partition.template or not self._has_node(device)

    def _has_node(self, device: HeldDevice) -> bool:
        vnpu = device.partition.vnpu if device.partition else None
        return vnpu is None or self.host.has_node(f"vdavinci{vnpu}")

    async def do(self, entry: Entry) -> None:
        """Cut all partitions of a claim that do not exist yet.

        Raises:
            ClaimError: One cannot be cut, or has no device node; the message says why.
            DcmiError: The chip is in use as a whole, or does not answer.
            StorageError: An id cannot be noted, or another task has been at the chip for long.
        """
        for device in filter(_is_ours, entry.devices):
            async with self._alone(device.chip_node):
                await self._make(entry, device)
        for device in self.ledger.entry(entry.uid).devices:
            if not self._has_node(device):
                raise ClaimUnavailable(
                    f"{device.device} is cut, but its device node does not exist on the node; a "
                    "vNPU for virtual machines has none (npu-smi info -t vnpu-mode)"
                )

    async def undo(self, entry: Entry) -> None:
        """Remove all partitions of a claim that exist.

        No container is left that needs them. So a claim need not wait for a chip that cannot be
        asked now, or fails to remove one: such a partition gets a record of its own, which the
        repair tries to remove again. The chip can come back with all its vNPUs.

        Raises:
            DcmiError: A container still uses one.
            DevicesUnknown: It is the record of such a partition, and the chip cannot be asked yet.
            StorageError: As above.
        """
        is_leftover = entry.holder.kind is HolderKind.LEFTOVER
        for device in filter(_is_ours, reversed(entry.devices)):
            if device.partition is None or device.partition.vnpu is None:
                continue
            try:
                await self._remove(entry, device)
            except DevicesUnknown as problem:
                if is_leftover:
                    raise
                await self._leave(entry, device, problem)
            else:
                await self._record_vnpu(entry, device, None)
                if is_leftover:
                    log.info("a vNPU that a claim had left is gone", extra=_fields(entry, device))

    async def tidy(self) -> None:
        """Nothing is left to do: each partition is of a record, which goes after it."""

    async def cut_by_hand(self, chip_node: str) -> frozenset[int]:
        """The ids of a chip's vNPUs that were cut for no claim, nor perhaps for one.

        Raises:
            ClaimUnavailable: The chip is not known now.
            DcmiError: It does not answer.
            StorageError: Another task has been at the chip for long, or the ledger cannot be read.
        """
        async with self._alone(chip_node):
            there = await self.vnpus.of(chip_node)
            async with self.ledger.exclusive():
                holds = [hold for one in self.ledger.by_uid.values() for hold in one.holds]
                return frozenset(
                    vnpu
                    for vnpu in there.keys() - vnpus_of(holds)
                    if not any(
                        self.cdi.hands_out(uid, {vnpu_node(vnpu)}) for uid in self.ledger.unreadable
                    )
                )

    # --- one partition; nobody else is at its chip ------------------------------------------------

    async def _make(self, entry: Entry, device: HeldDevice) -> None:
        partition = device.partition
        assert partition is not None, "only partitions are made"
        there = await self.vnpus.of(device.chip_node)
        if partition.vnpu is not None and there.get(partition.vnpu) == partition.template:
            return  # whoever noted the id died, or was given up, after it was made
        if partition.vnpu is not None and there.get(partition.vnpu) == "":
            raise ClaimUnavailable(_untold(device))
        wanted = partition.vnpu
        if wanted is None or wanted in there:
            wanted = await self._choose(entry, device, frozenset(there))
        try:
            made = await self.vnpus.create(device.chip_node, partition.template, wanted)
        except Busy as error:  # it may be made all the same
            raise ClaimUnavailable(await self._words_of_use(device, error)) from error
        except DcmiError as error:
            if not await self._may_be_there(device, wanted):
                await self._record_vnpu(entry, device, None)
            kind = ClaimUnavailable if error.retryable else ClaimError
            raise kind(await self._refusal_text(device, error)) from error
        if made != wanted:
            await self._record_vnpu(entry, device, await self._found(device, wanted, made, there))

    async def _found(
        self, device: HeldDevice, wanted: int, made: int, before: Collection[int]
    ) -> int:
        """Which id a partition has got, of which the library says that it is not the wanted one.

        What the chip lists decides: the id that is said may be another's.

        Raises:
            ClaimUnavailable: It lists no such partition.
            DcmiError: It does not answer.
        """
        assert device.partition is not None, "only partitions are made"
        there = await self.vnpus.of(device.chip_node)
        for vnpu in (wanted, made):
            if vnpu not in before and there.get(vnpu) == device.partition.template:
                return vnpu
        raise ClaimUnavailable(
            f"{device.device} cannot be cut off {device.chips[0].name}: the Ascend driver says "
            f"that it cut vNPU {made}, and lists no such new vNPU"
        )

    async def _may_be_there(self, device: HeldDevice, vnpu: int) -> bool:
        """Whether a partition may exist though the library said that it failed to make it.

        A chip that fails within the call may have made it, and only its answer is lost.
        """
        assert device.partition is not None, "only partitions are made"
        try:
            there = await self.vnpus.of(device.chip_node)
        except (ClaimUnavailable, DcmiError):
            return True
        return there.get(vnpu) == device.partition.template

    async def _remove(self, entry: Entry, device: HeldDevice) -> None:
        """Remove a partition if it exists; return when the Board shows that it does not.

        Else the Board might have a vNPU that no record has: one that was cut by hand, and so
        offered. Whoever has removed it may have died before the Board was read.

        Raises:
            DevicesUnknown: Nobody can tell whether it exists.
        """
        node = self.vnpus.place_of(device.chips[0]) if device.chips else device.chip_node
        if node is None:
            return
        async with self._alone(node):
            await self._destroy(entry, device, node)
        with trio.move_on_after(_SEEN_SECONDS):
            await self.vnpus.seen()
            if self._is_on_board(device, node):
                raise DevicesUnknown(f"{device.device}: the Ascend driver lists its vNPU still")
            return
        raise DevicesUnknown(f"{device.device}: the NPUs are not read now")

    def _is_on_board(self, device: HeldDevice, node: str) -> bool:
        assert device.partition is not None, "only partitions are removed"
        known = self.vnpus.known(node).items()
        return (device.partition.vnpu, device.partition.template) in known

    async def _destroy(self, entry: Entry, device: HeldDevice, node: str) -> None:
        partition = device.partition
        assert partition is not None, "only partitions are removed"
        assert partition.vnpu is not None, "it was made"
        try:
            template = (await self.vnpus.of(node)).get(partition.vnpu)
        except DcmiError as error:
            raise DevicesUnknown(f"{device.device}: {error}") from error
        if template == partition.template:
            try:
                await self.vnpus.destroy(node, partition.vnpu)
            except Busy:  # a container may use it
                raise
            except DcmiError as error:
                raise DevicesUnknown(f"{device.device}: {error}") from error
        elif template == "":
            raise DevicesUnknown(_untold(device))
        elif template is not None:
            log.warning(
                "a vNPU has the id of one that was cut for a claim, but is another: it stays",
                extra=_fields(entry, device) | {"template": template},
            )

    async def _leave(self, entry: Entry, device: HeldDevice, problem: DevicesUnknown) -> None:
        """Have a partition wait in a record of its own, so that its id stays known as ours."""
        assert device.partition is not None, "only partitions are left"
        assert device.partition.vnpu is not None, "it was made"
        log.warning(
            "a claim's vNPU cannot be removed now, and is removed once its NPU can be asked",
            extra=_fields(entry, device) | {"problem": str(problem)},
        )
        async with self.ledger.exclusive():
            self.ledger.put(entry.leftover(device, device.partition.vnpu, step=self.name))
        await self._record_vnpu(entry, device, None)

    async def _choose(self, entry: Entry, device: HeldDevice, there: frozenset[int]) -> int:
        """Choose an id that nobody has, and note it.

        The highest is taken, because the library takes the lowest for those who cut by hand.

        Raises:
            ClaimUnavailable: All are taken, or the chip cannot be cut at all.
        """
        split = split_of(device.chips[0]) if device.chips else None
        async with self.ledger.exclusive():
            known = vnpus_of(hold for one in self.ledger.by_uid.values() for hold in one.holds)
        known |= self.vnpus.known(device.chip_node).keys()  # gone, but the Board would mix them up
        free = [vnpu for vnpu in split.vdev_ids if vnpu not in there | known] if split else []
        if not free:
            raise ClaimUnavailable(f"{device.device} cannot be cut: no id of a vNPU is free")
        await self._record_vnpu(entry, device, free[-1])
        return free[-1]

    async def _record_vnpu(self, entry: Entry, device: HeldDevice, vnpu: int | None) -> None:
        """Put into the ledger which vNPU a partition is, and what the containers get then.

        Without a vNPU no container starts. So nothing of the host is needed to forget an id.
        """
        async with self.ledger.exclusive():
            now = self.ledger.entry(entry.uid)
            devices = tuple(
                _as(one, vnpu) if one.device == device.device else one for one in now.devices
            )
            edits = now.edits
            if vnpu is not None:
                edits = self.cdi.render(now.uid, devices, allocation=now.allocation)
            self.ledger.put(with_devices(now, devices, edits))

    async def _words_of_use(self, device: HeldDevice, error: Busy) -> str:
        """What keeps a partition from being made now, for the pod's owner."""
        users: tuple[int, ...] = ()
        with suppress(DevicesUnknown, DcmiError):
            users = await self.vnpus.processes(device.chip_node)
        by = f", which process {' and '.join(map(str, users))} uses" if users else ""
        return f"{device.device} cannot be cut off {device.chips[0].name} now{by}: {error}"

    async def _refusal_text(self, device: HeldDevice, error: DcmiError) -> str:
        """Why a partition cannot be made, for the pod's owner."""
        assert device.partition is not None, "only partitions are made"
        chip, template = device.chips[0], device.partition.template
        split = split_of(chip)
        words = f"{device.device} cannot be cut off {chip.name}"
        if split is None or split.named(template) is None:
            return f"{words}: its board has no template {template}"
        ours = vnpus_of(self.ledger.holds.value)
        try:
            others = [vnpu for vnpu in await self.vnpus.of(device.chip_node) if vnpu not in ours]
        except (ClaimUnavailable, DcmiError):
            others = []
        if others:
            by_hand = ", ".join(map(str, others))
            words += f": vNPUs that were cut by hand ({by_hand}) may leave no room"
        return f"{words}: {error}"

    def _alone(self, chip_node: str) -> AbstractAsyncContextManager[None]:
        """Be the only task of the node that is at the vNPUs of a chip."""
        return StepLocks(self.ledger.state_folder).hold(chip_node.rpartition("/")[2])


def _is_ours(device: HeldDevice) -> bool:
    return device.partition is not None and device.partition.on_demand


def _untold(device: HeldDevice) -> str:
    """That it cannot be seen whether a vNPU is a partition of ours."""
    vnpu = device.partition.vnpu if device.partition else None
    return f"{device.device}: the Ascend driver does not tell the template of vNPU {vnpu}"


def _fields(entry: Entry, device: HeldDevice) -> dict[str, object]:
    """What log lines say of a partition."""
    vnpu = device.partition.vnpu if device.partition else None
    return {"claim": str(entry), "device": device.device, "vnpu": vnpu}


def _as(device: HeldDevice, vnpu: int | None) -> HeldDevice:
    """The device with its vNPU: the kernel takes `davinci` for its name in containers too."""
    nodes = {} if vnpu is None else {f"/dev/davinci{vnpu}": f"/dev/vdavinci{vnpu}"}
    assert device.partition is not None, "only partitions have vNPUs"
    return replace(device, nodes=nodes, partition=replace(device.partition, vnpu=vnpu))
