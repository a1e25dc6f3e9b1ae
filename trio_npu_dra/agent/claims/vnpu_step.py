"""The step `vnpu`: cuts partitions off chips for a claim, and removes them.

The record has a vNPU's id before the vNPU is cut, and until it is removed. So a crash in between
leaves no unknown vNPU, and a vNPU that no record names is not the driver's: it is never removed.
Therefore the id is chosen here, not by the library (docs/decisions/vnpu-ids.md).
"""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.holds.entry import Entry, EntryState, HeldDevice
from trio_npu_dra.agent.holds.hold import HolderKind, vnpu_holders, vnpus_of
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.dcmi.errors import Busy, DcmiError
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.ascend.splits import may_be_cut_by, split_of
from trio_npu_dra.ascend.vnpus import Vnpus
from trio_npu_dra.kit.base.errors import ClaimError, ClaimUnavailable, DevicesUnknown

log = logging.getLogger(__name__)

_SEEN_SECONDS: Final = 10.0  # for the Board to be read anew; a chip that hangs delays it


@dataclass(frozen=True, slots=True)
class _Part:
    """A partition of a claim that is cut on demand."""

    entry: Entry
    device: HeldDevice
    partition: Partition

    @property
    def fields(self) -> dict[str, object]:
        """For log lines."""
        vnpu = self.partition.vnpu
        return {"claim": str(self.entry), "device": self.device.device, "vnpu": vnpu}

    def may_be(self, found: str | None) -> bool:
        """Whether a vNPU that the library calls *found* may be this partition."""
        chips, template = self.device.chips, self.partition.template
        return may_be_cut_by(chips[0], found, template) if chips else found == template


def _parts(entry: Entry) -> list[_Part]:
    return [
        _Part(entry, device, device.partition)
        for device in entry.devices
        if device.partition is not None and device.partition.on_demand
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class VnpuStep:
    """Cuts partitions for claims; fulfils `claims.steps.Step`.

    Only one task works on a chip at a time, so that no two choose one id.

    Attributes:
        ledger: Gets the ids.
        cdi: Renders the CDI edits, once the ids are known.
        vnpus: The vNPUs of the node.
        host: Has their device nodes.
    """

    ledger: Ledger
    cdi: CdiFolder
    vnpus: Vnpus
    host: Host

    @property
    def name(self) -> str:
        """Its name in records."""
        return "vnpu"

    def is_needed(self, entry: Entry) -> bool:
        """Whether a claim has a partition that is cut on demand."""
        return bool(_parts(entry))

    def is_lost(self, entry: Entry) -> bool:
        """Whether a partition is gone, or another one has its id."""
        return any(map(self._is_lost, _parts(entry)))

    def _is_lost(self, part: _Part) -> bool:
        vnpu, template = part.partition.vnpu, part.partition.template
        if vnpu is None:
            return True
        found = self.vnpus.known(part.device.chip_node).get(vnpu, template)
        return not part.may_be(found) or not self._has_node(vnpu)

    def _has_node(self, vnpu: int) -> bool:
        return self.host.has_node(f"vdavinci{vnpu}")

    async def do(self, entry: Entry) -> None:
        """Cut all partitions of a claim that do not exist yet.

        Raises:
            ClaimError: One cannot be cut, or has no device node; the message says why.
            StorageError: An id cannot be recorded, or another task holds the chip's lock for long.
        """
        for part in _parts(entry):
            async with self.ledger.alone(part.device.chip_node):
                await self._make(part)
        for part in _parts(self.ledger.by_uid[entry.uid]):
            if part.partition.vnpu is not None and not self._has_node(part.partition.vnpu):
                raise ClaimUnavailable(
                    f"{part.device.device} is cut, but its device node does not exist on the node; "
                    "a vNPU for virtual machines has none (npu-smi info -t vnpu-mode)"
                )

    async def undo(self, entry: Entry) -> None:
        """Remove all partitions of a claim that exist.

        No container needs them any more, so a claim does not wait for a chip that does not answer
        or fails: such a partition gets a record of its own, a leftover, which the repair removes
        later. The chip can come back with all its vNPUs.

        Raises:
            ClaimUnavailable: A container still uses one.
            DevicesUnknown: *entry* is a leftover, and the chip does not answer yet.
            StorageError: As above.
        """
        is_leftover = entry.holder.kind is HolderKind.LEFTOVER
        for part in reversed(_parts(entry)):
            if part.partition.vnpu is None:
                continue
            try:
                await self._remove(part, part.partition.vnpu)
            except DevicesUnknown as problem:
                if is_leftover:
                    raise
                await self._leave(part, part.partition.vnpu, problem)
            else:
                await self._record_vnpu(part, None)
                if is_leftover:
                    log.info("a vNPU that a claim had left is gone", extra=part.fields)

    async def tidy(self) -> None:
        """Nothing: each partition has a record, which is removed after it."""

    # --- one partition, under the lock of its chip ------------------------------------------------

    async def _make(self, part: _Part) -> None:
        device, template, wanted = part.device, part.partition.template, part.partition.vnpu
        there = await self._there(part)
        if wanted is not None and wanted in there:
            if there[wanted] == template:
                return  # an earlier try was killed, or given up, after it was cut
            if part.may_be(there[wanted]):
                raise ClaimUnavailable(_unnamed(part))
            wanted = None
        if wanted is None:
            wanted = await self._choose(part, frozenset(there))
        try:
            made = await self.vnpus.create(device.chip_node, template, wanted)
        except Busy as error:  # it may be cut all the same
            raise ClaimUnavailable(await self._busy_text(part, error)) from error
        except DcmiError as error:
            # A chip that fails within the call may have cut it, and only its answer is lost.
            is_cut = True
            with suppress(ClaimUnavailable, DcmiError):
                is_cut = part.may_be((await self.vnpus.of(device.chip_node)).get(wanted))
            if not is_cut:
                await self._record_vnpu(part, None)
            kind = ClaimUnavailable if error.retryable else ClaimError
            raise kind(await self._refusal_text(part, error)) from error
        if made != wanted:
            made = await self._check_made(
                part, [one for one in (wanted, made) if one not in there], made
            )
            await self._record_vnpu(part, made)

    async def _there(self, part: _Part) -> Mapping[int, str]:
        """The templates of the vNPUs of a partition's chip, by id."""
        try:
            return await self.vnpus.of(part.device.chip_node)
        except DcmiError as error:
            kind = ClaimUnavailable if error.retryable else ClaimError
            raise kind(
                f"{part.device.device}: the vNPUs of its NPU cannot be read: {error}"
            ) from error

    async def _check_made(self, part: _Part, ids: Collection[int], made: int) -> int:
        """The id of *ids* that a new partition has; the returned id may be another claim's.

        Raises:
            ClaimError: The chip lists no such partition, or does not answer.
        """
        there = await self._there(part)
        for vnpu in ids:
            if part.may_be(there.get(vnpu)):
                return vnpu
        raise ClaimUnavailable(
            f"{part.device.device} cannot be cut off {part.device.chips[0].name}: the Ascend "
            f"driver says that it cut vNPU {made}, and lists no such new vNPU"
        )

    async def _choose(self, part: _Part, there: frozenset[int]) -> int:
        """Choose a free id, and record it.

        The highest is taken, because a person who creates a vNPU manually gets the lowest.

        Raises:
            ClaimUnavailable: All are taken, or the chip cannot be cut at all.
        """
        device = part.device
        split = split_of(device.chips[0])
        taken = there | vnpu_holders(self.ledger.holds.value).keys()
        taken |= self.vnpus.known(device.chip_node).keys()  # gone, but the Board would mix them up
        free = [vnpu for vnpu in split.vdev_ids if vnpu not in taken] if split else []
        if not free:
            raise ClaimUnavailable(f"{device.device} cannot be cut: no id of a vNPU is free")
        await self._record_vnpu(part, free[-1])
        return free[-1]

    async def _remove(self, part: _Part, vnpu: int) -> None:
        """Remove a partition if it exists; return when the Board shows that it does not.

        Else the Board might have a vNPU that no record names, which would be offered as cut by
        hand. So the Board is awaited also where an earlier try removed it.

        Raises:
            DevicesUnknown: The chip cannot tell whether it exists.
        """
        device, template = part.device, part.partition.template
        node = self.vnpus.place_of(device.chips[0])
        if node is None:
            return
        async with self.ledger.alone(node):
            await self._destroy(part, vnpu, node)
        with trio.move_on_after(_SEEN_SECONDS):
            await self.vnpus.seen()
            if self.vnpus.known(node).get(vnpu) == template:
                raise DevicesUnknown(f"{device.device}: the Ascend driver lists its vNPU still")
            return
        raise DevicesUnknown(f"{device.device}: the NPUs are not read now")

    async def _destroy(self, part: _Part, vnpu: int, node: str) -> None:
        try:
            template = (await self.vnpus.of(node)).get(vnpu)
        except DcmiError as error:
            raise DevicesUnknown(f"{part.device.device}: {error}") from error
        if template == part.partition.template:
            try:
                await self.vnpus.destroy(node, vnpu)
            except Busy as error:
                device = part.device.device
                raise ClaimUnavailable(f"{device} cannot be removed now: {error}") from error
            except DcmiError as error:
                raise DevicesUnknown(f"{part.device.device}: {error}") from error
        elif part.may_be(template):
            raise DevicesUnknown(_unnamed(part))
        elif template is not None:
            log.warning(
                "a vNPU has the id of one that was cut for a claim, but is another: it stays",
                extra=part.fields | {"template": template},
            )

    async def _leave(self, part: _Part, vnpu: int, problem: DevicesUnknown) -> None:
        """Move a partition to a record of its own, which frees its claim and keeps its id."""
        log.warning(
            "a claim's vNPU could not be removed, which is tried again until it is gone",
            extra=part.fields | {"problem": str(problem)},
        )
        entry, device = part.entry, part.device
        leftover = Entry(
            holder=entry.holder._replace(
                kind=HolderKind.LEFTOVER, uid=f"vnpu-{vnpu}-of-{entry.uid}"
            ),
            state=EntryState.UNDOING,
            allocation=tuple(one for one in entry.allocation if one.device == device.device),
            devices=(device,),
            steps=(self.name,),
        )
        await self.ledger.within(partial(self.ledger.put, leftover))
        await self._record_vnpu(part, None)

    async def _record_vnpu(self, part: _Part, vnpu: int | None) -> None:
        """Record a partition's vNPU, and the CDI edits with it.

        Without a vNPU the edits stay, because no container starts: so this needs no host files.

        Raises:
            ClaimUnavailable: Another claim has it.
            StorageError: It cannot be recorded.
        """
        # The kernel takes the number behind `davinci` for the vNPU's id in containers too.
        nodes = {} if vnpu is None else {f"/dev/davinci{vnpu}": f"/dev/vdavinci{vnpu}"}
        partition = replace(part.partition, vnpu=vnpu)

        def put() -> None:
            now = self.ledger.by_uid[part.entry.uid]
            others = (one.holds for one in self.ledger.by_uid.values() if one.uid != now.uid)
            if vnpu in vnpu_holders(hold for holds in others for hold in holds):
                # Without a record, a vNPU whose id the library chose looks created manually.
                raise ClaimUnavailable(
                    f"{part.device.device} must be cut again: another claim has got vNPU {vnpu}"
                )
            devices = tuple(
                one._replace(nodes=nodes, partition=partition)
                if one.device == part.device.device
                else one
                for one in now.devices
            )
            edits = now.edits
            if vnpu is not None:
                edits = self.cdi.render(
                    now.uid, devices, allocation=now.allocation, metadata=now.metadata
                )
            self.ledger.put(replace(now, devices=devices, edits=edits))

        await self.ledger.within(put)

    async def _busy_text(self, part: _Part, error: Busy) -> str:
        """Why a partition cannot be cut now, for the pod's owner."""
        users: tuple[int, ...] = ()
        with suppress(DevicesUnknown, DcmiError):
            users = await self.vnpus.processes(part.device.chip_node)
        by = f", which process {' and '.join(map(str, users))} uses" if users else ""
        chip = part.device.chips[0].name
        return f"{part.device.device} cannot be cut off {chip} now{by}: {error}"

    async def _refusal_text(self, part: _Part, error: DcmiError) -> str:
        """Why a partition cannot be cut, for the pod's owner."""
        chip, template = part.device.chips[0], part.partition.template
        split = split_of(chip)
        words = f"{part.device.device} cannot be cut off {chip.name}"
        if split is None or split.named(template) is None:
            return f"{words}: its board has no template {template}"
        others: list[int] = []
        with suppress(ClaimUnavailable, DcmiError):
            ours = vnpus_of(self.ledger.holds.value)
            others = [v for v in await self.vnpus.of(part.device.chip_node) if v not in ours]
        if others:
            by_hand = ", ".join(map(str, others))
            words += f": vNPUs that were cut by hand ({by_hand}) may leave no room"
        return f"{words}: {error}"


def _unnamed(part: _Part) -> str:
    """The message that the vNPU may or may not be the claim's."""
    vnpu = part.partition.vnpu
    return f"{part.device.device}: the Ascend driver does not tell the template of vNPU {vnpu}"
