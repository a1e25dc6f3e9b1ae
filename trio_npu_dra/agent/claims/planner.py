"""Plans what a claim is to hold: from the API server's claim, and from the ledger or the Board."""

import math
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import trio

from trio_npu_dra.agent.claims.allocation import allocation_of, check_partitions, offers_of
from trio_npu_dra.agent.claims.lifecycle import ClaimPlan
from trio_npu_dra.agent.claims.metadata import DeviceMetadata
from trio_npu_dra.agent.config.model import EffectiveConfig
from trio_npu_dra.agent.handout.cdi import CdiFolder, DriverFiles
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.agent.holds.entry import Allocated, Entry, EntryState, HeldDevice
from trio_npu_dra.agent.holds.hold import Hold, Holder, HolderKind, vnpu_holders
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.container import DeviceNode, chip_nodes, partition_nodes
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.offers import Offer, PartitionMode
from trio_npu_dra.kit.api.claims import ClaimReader, read_claim
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.base.device_metadata import Documents
from trio_npu_dra.kit.base.errors import DriverError, HoldGone
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.driver import ClaimRef

FILES_SECONDS: Final = 1.0
"""How long calls share a look at the host's files, which is 40 system calls and a tenth of a
prepare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadClaim:
    """An allocated claim, as the API server has it.

    Attributes:
        ref: How the kubelet names it.
        claim: All of it.
        allocation: Its devices of this node.
        before: Its record when it was asked for, if any.
    """

    ref: ClaimRef
    claim: ResourceClaim
    allocation: tuple[Allocated, ...]
    before: Entry | None


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at the node, for all claims of a call."""

    board: Board
    holds: tuple[Hold, ...]
    partitioning: PartitionMode
    files: DriverFiles

    @cached_property
    def offers(self) -> Mapping[str, Offer]:
        """All offers, held ones too, by name."""
        found = available(self.board, self.holds, self.partitioning)
        return {offer.name: offer for offer in found}


@dataclass(eq=False, slots=True, kw_only=True)
class ClaimPlanner:
    """Plans what claims are to hold.

    Attributes:
        reader: Reads claims.
        board: The chips of this node; an empty Board means that they are not known yet.
        host: The host with the device nodes of chips.
        ledger: Who holds what.
        cdi: Renders what a claim's containers get.
        driver_name: The driver of our results in an allocation.
        pool_name: The pool of this node.
        partitioning: How chips are cut for claims.
        metadata: Says what containers can read of devices; None if they can read nothing.
    """

    reader: ClaimReader
    board: Observable[Board]
    host: Host
    ledger: Ledger
    cdi: CdiFolder
    driver_name: str
    pool_name: str
    partitioning: Observable[PartitionMode]
    metadata: DeviceMetadata | None = None
    _files: DriverFiles = field(init=False)
    _files_until: float = field(default=-math.inf, init=False)

    async def read(self, ref: ClaimRef) -> ReadClaim:
        """Read a claim; its plan looks at the host's files, unless that was done a moment ago.

        Raises:
            ClaimError: It cannot be prepared; the subclass says why.
            KubeError: The API server refused or is unreachable.
        """
        now = trio.current_time()
        if now >= self._files_until:
            self._files, self._files_until = DriverFiles(self.host), now + FILES_SECONDS
        before = self.ledger.by_uid.get(ref.uid)
        claim = await read_claim(self.reader, ref.name, ref.namespace)
        allocation = allocation_of(
            claim, ref, driver_name=self.driver_name, pool_name=self.pool_name
        )
        return ReadClaim(ref=ref, claim=claim, allocation=allocation, before=before)

    def plan(self, claims: Iterable[ReadClaim]) -> dict[str, ClaimPlan | DriverError]:
        """Plan what claims are to hold; inside the ledger's critical section."""
        look = Look(
            board=self.board.value,
            holds=self.ledger.holds.value,
            partitioning=self.partitioning.value,
            files=self._files,
        )
        plans: dict[str, ClaimPlan | DriverError] = {}
        for claim in claims:
            try:
                plans[claim.ref.uid] = self._plan(claim, look)
            except DriverError as error:
                plans[claim.ref.uid] = error
                self._files_until = -math.inf  # the host may lack one
        return plans

    def _plan(self, read: ReadClaim, look: Look) -> ClaimPlan:
        """Plan what a claim is to hold.

        A claim that is ready for just this allocation is answered from the ledger, whether its
        chips can be asked or not, as long as the host has what its containers need.

        Raises:
            HoldGone: It must be read again.
            ClaimError: It cannot be prepared; the subclass says why.
        """
        known = self._ready(read.ref.uid, read.allocation)
        if known is not None:
            return ClaimPlan(entry=self.cdi.as_now(known, look.files), is_fresh=False)
        if read.before is not None and self.ledger.by_uid.get(read.ref.uid) is not read.before:
            raise HoldGone(f"claim {read.before} has just been unprepared by another call")
        return ClaimPlan(entry=self._planned(read, look))

    def _ready(self, uid: str, allocation: tuple[Allocated, ...]) -> Entry | None:
        """The claim's entry, if it answers for the allocation and its device nodes exist."""
        entry = self.ledger.by_uid.get(uid)
        is_answer = (
            entry is not None
            and entry.state is EntryState.READY
            and entry.allocation == allocation
            and all(self._exists(path) for path in entry.given_nodes)
        )
        return entry if is_answer else None

    def _exists(self, host_path: str) -> bool:
        path = f"{self.host.dev_root}/{host_path.removeprefix('/dev/')}"
        try:
            return stat.S_ISCHR(os.stat(path).st_mode)  # noqa: PTH116 - a Path costs more than this
        except (OSError, ValueError):  # a record may say anything, such as a NUL in a path
            return False

    def _planned(self, read: ReadClaim, look: Look) -> Entry:
        ref, allocation = read.ref, read.allocation
        offers = offers_of(
            allocation, pool_name=self.pool_name, by_name=look.offers, gaps=look.board.gaps
        )
        check_partitions(allocation, offers, vnpu_holders(look.holds))
        configs = {given.device: given.config for given in allocation}
        devices = tuple(self._held(offer, configs[offer.name]) for offer in offers)
        metadata: Documents = {}
        if self.metadata is not None:
            by_name = {offer.name: offer for offer in offers}
            metadata = self.metadata.of_claim(read.claim, allocation, by_name, look.board)
        return Entry(
            holder=Holder(
                kind=HolderKind.CLAIM, namespace=ref.namespace, name=ref.name, uid=ref.uid
            ),
            state=EntryState.READY,
            allocation=allocation,
            devices=devices,
            edits=self.cdi.render(
                ref.uid, devices, look.files, allocation=allocation, metadata=metadata
            ),
            metadata=metadata,
        )

    def _held(self, offer: Offer, config: EffectiveConfig) -> HeldDevice:
        first, partition = offer.chips[0], offer.partition
        nodes: tuple[DeviceNode, ...] = ()
        if partition is None:
            nodes = tuple(node for chip in offer.chips for node in chip_nodes(self.host, chip))
        elif partition.on_demand:
            partition = replace(partition, vnpu=None)  # the id belonged to an earlier claim
        elif partition.vnpu is not None:
            nodes = partition_nodes(self.host, partition.vnpu)
        return HeldDevice(
            device=offer.name,
            family=first.family,
            nodes={node.path: node.host_path for node in nodes},
            chips=offer.chips,
            config=config,
            partition=partition,
            chip_node=first.device_node if partition else "",
        )
