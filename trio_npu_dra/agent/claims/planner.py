"""What a claim is to hold: read from the API server, and looked up in ledger or Board."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol

import trio

from trio_npu_dra.agent.claims.cdi import CdiFolder
from trio_npu_dra.agent.claims.driver_files import DriverFiles
from trio_npu_dra.agent.claims.lifecycle import Wanted
from trio_npu_dra.agent.claims.plan import allocation_of, check_partitions, offers_of
from trio_npu_dra.agent.config.effective import EffectiveConfig
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.agent.holds.entry import Allocated, Entry, EntryState, HeldDevice
from trio_npu_dra.agent.holds.hold import Hold, Holder, HolderKind, vnpus_of
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.container import DeviceNode, chip_nodes, partition_nodes
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.offers import NO_PARTITIONS, Offer, PartitionMode, Standing
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.base.errors import ClaimNotAllocated, DriverError, NotFound
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.driver import ClaimRef

_LOOK_SECONDS: Final = 1.0  # how long a look at the node counts


class ClaimReader(Protocol):
    """Where claims are read; `api.client.KubeClient` is one."""

    async def get(
        self,
        kind: type[ResourceClaim],
        name: str,
        namespace: str | None = None,
        *,
        is_cached: bool = False,
    ) -> ResourceClaim:
        """Read one claim.

        Raises:
            NotFound: It does not exist.
            KubeError: Refused or unreachable.
        """
        ...


class Look:
    """What is found out of the node once for all claims of a call.

    Args:
        board: Its chips.
        holds: Who has what of them.
        host: Its files.
        partitioning: Whether chips are cut for claims.

    Attributes:
        host_facts: What its containers need.
    """

    def __init__(
        self,
        board: Board,
        holds: tuple[Hold, ...],
        host: Host,
        partitioning: PartitionMode = NO_PARTITIONS,
    ) -> None:
        self.host_facts = DriverFiles(host)
        self._board = board
        self._holds = holds
        self._partitioning = partitioning
        self._since = trio.current_time()

    @cached_property
    def offers(self) -> Mapping[str, Offer]:
        """What may be handed out, and what has been, by name."""
        found = available(self._board, self._holds, self._partitioning)
        return {offer.name: offer for offer in found}

    def relies_on_holds(self, allocation: Iterable[Allocated]) -> bool:
        """Whether a device of the allocation is not there, or not free, because it is held."""
        found = (self.offers.get(given.device) for given in allocation)
        return any(offer and offer.standing is not Standing.OPEN for offer in found)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Why devices may be missing from them, in words."""
        unsettled = replace(self._partitioning, ours=vnpus_of(self._holds)).unsettled(self._board)
        words = (f"it is not known yet who cut vNPU {vnpu}" for vnpu in unsettled)
        return (*self._board.gaps, *words)

    @property
    def is_current(self) -> bool:
        """Whether it was begun just now."""
        return trio.current_time() - self._since < _LOOK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlanner:
    """Works out what claims are to hold.

    Attributes:
        reader: Where claims are read.
        board: The chips of this node; an empty Board means that they are not known yet.
        host: Tells the device nodes of a chip.
        ledger: Who holds what.
        cdi: Tells what a claim's containers get.
        driver_name: Results of other drivers are theirs.
        pool_name: The pool of this node.
        partitioning: Whether chips are cut for claims.
    """

    reader: ClaimReader
    board: Observable[Board]
    host: Host
    ledger: Ledger
    cdi: CdiFolder
    driver_name: str
    pool_name: str
    partitioning: Observable[PartitionMode] = field(
        default_factory=lambda: Observable(NO_PARTITIONS)
    )

    def look(self) -> Look:
        """Look at the node, as far as it will be necessary."""
        return Look(self.board.value, self.ledger.holds.value, self.host, self.partitioning.value)

    async def read(self, ref: ClaimRef, look: Look) -> Wanted:
        """What a claim is to hold.

        A claim that is ready for just this allocation is answered from the ledger, whether its
        chips can be asked or not, as long as the device nodes of its containers exist.

        Args:
            ref: The claim.
            look: A look at the node, which is repeated if it is old when it is needed.

        Raises:
            ClaimError: It cannot be prepared; the subclass says why.
            KubeError: The API server refused or is unreachable.
        """
        try:
            claim = await self.reader.get(ResourceClaim, ref.name, ref.namespace)
        except NotFound:
            raise ClaimNotAllocated("the claim does not exist any more") from None
        allocation = allocation_of(
            claim, ref, driver_name=self.driver_name, pool_name=self.pool_name
        )
        known = self._known(ref.uid, allocation)
        if known is not None and known.knows_its_chips:
            return Wanted(entry=known, is_fresh=False)
        look = look if look.is_current else self.look()
        if look.relies_on_holds(allocation):
            async with self.ledger.exclusive():
                pass  # another instance may have released what we take for held
            look = self.look()
        try:
            return Wanted(entry=self._planned(ref, allocation, look))
        except DriverError:
            async with self.ledger.exclusive():
                pass  # another instance may have prepared it since we last read the ledger
            if (known := self._known(ref.uid, allocation)) is None:
                raise
            return Wanted(entry=known, is_fresh=False)

    def _known(self, uid: str, allocation: tuple[Allocated, ...]) -> Entry | None:
        entry = self.ledger.by_uid.get(uid)
        is_answer = (
            entry is not None
            and entry.state is EntryState.READY
            and entry.allocation == allocation
            and entry.edits is not None
            and all(self._exists(path) for path in entry.given_nodes)
        )
        return entry if is_answer else None

    def _exists(self, host_path: str) -> bool:
        path = f"{self.host.dev_root}/{host_path.removeprefix('/dev/')}"
        try:
            return stat.S_ISCHR(os.stat(path).st_mode)  # noqa: PTH116 - a Path costs more than this
        except (OSError, ValueError):  # a record may say anything, such as a NUL in a path
            return False

    def _planned(self, ref: ClaimRef, allocation: tuple[Allocated, ...], look: Look) -> Entry:
        chosen = offers_of(
            allocation, pool_name=self.pool_name, by_name=look.offers, gaps=look.gaps
        )
        check_partitions(allocation, chosen)
        configs = {given.device: given.config for given in allocation}
        devices = tuple(self._held(offer, configs[offer.name]) for offer in chosen)
        return Entry(
            holder=Holder(
                kind=HolderKind.CLAIM, namespace=ref.namespace, name=ref.name, uid=ref.uid
            ),
            state=EntryState.READY,
            allocation=allocation,
            devices=devices,
            edits=self.cdi.render(ref.uid, devices, look.host_facts, allocation=allocation),
        )

    def _held(self, offer: Offer, config: EffectiveConfig | None) -> HeldDevice:
        first, partition = offer.chips[0], offer.partition
        nodes: list[DeviceNode] = []
        if partition is None:
            nodes = [node for chip in offer.chips for node in chip_nodes(self.host, chip)]
        elif partition.on_demand:
            partition = replace(partition, vnpu=None)  # another may have had it before
        elif partition.vnpu is not None:
            nodes = [*partition_nodes(self.host, partition.vnpu)]
        return HeldDevice(
            device=offer.name,
            family=first.family,
            nodes={node.path: node.host_path for node in nodes},
            chips=offer.chips,
            config=config,
            partition=partition,
            chip_node=first.device_node if partition else "",
        )
