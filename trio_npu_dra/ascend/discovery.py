"""From the library's card list to a Board (docs/internals/hardware.md, "Facts").

A chip is read in two calls to the worker, its identity and then its other facts: one that hangs in
the second keeps its known facts, and does not affect others.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from trio_npu_dra.ascend import chip as chips
from trio_npu_dra.ascend.chip_network import DEADLINE_SECONDS, HURRIED_SECONDS, read_addresses
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.dcmi.types import NO_ANSWER, ChipRef, Link
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.division_poll import read_policy, read_vnpu_mode
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.identity import told_apart
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, Chip, Links
from trio_npu_dra.ascend.topology import topology_groups
from trio_npu_dra.ascend.traits import TRAITS

log = logging.getLogger(__name__)

T = TypeVar("T")


async def discover(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, *, known: Board = EMPTY_BOARD
) -> Board:
    """Read all chips of the node, without their health.

    A chip that is listed but does not answer stays as it was in *known*; an unknown one is left
    out. A known chip that has left the PCI bus, or that two lists in a row lack, is gone, unless it
    answers all the same. A list
    with another die in its place, or with its die under another physical id, counts as one without
    it: faults, holders and vNPUs of claims go by these.

    *known* is the Board of the last listing, or has the chips that an earlier process remembered.

    Raises:
        DcmiError: The library cannot even list the cards.
    """
    known = replace(known, chips=told_apart(known.chips, {})[0])  # perhaps remembered from before
    cards = await worker.call(dcmi.card_list)
    silent = _Silent(known, cards, host.accelerators())
    found_by_list = await _identify_all(worker, dcmi, cards, silent)
    beside = await _identify_unlisted(worker, dcmi, known, found_by_list, silent)
    identified = _distinct([*found_by_list, *beside], silent)
    read = [await _read(worker, dcmi, host, chip, silent) for chip in identified]
    own, shared = told_apart(read, known.by_name)
    for line in shared:
        silent.add_facts(line)
    answering = _sure(known, own, silent)
    found = (*answering, *_absent(known, answering, silent))
    ids = {chip.physical_id for chip in found}
    links = {pair: link for pair, link in known.links.items() if ids.issuperset(pair)}
    links |= await _read_links(worker, dcmi, answering, links, silent)
    board = Board(
        chips=_placed(found, links),
        links=links,
        driver_version=await _of_node(
            "driver version",
            known.driver_version,
            silent,
            partial(worker.call, dcmi.driver_version),
        ),
        multi_die_policy=known.multi_die_policy,
        unlisted_accelerators=unlisted_accelerators(found, host),
    )
    policy = await _of_node(
        "multi-die policy",
        known.multi_die_policy,
        silent,
        partial(read_policy, worker, dcmi, board),
    )
    mode = await read_vnpu_mode(worker, dcmi, replace(board, vnpu_mode=known.vnpu_mode))
    return replace(board, multi_die_policy=policy, vnpu_mode=mode, unanswered=tuple(silent.lines))


def without_cards(host: Host, known: Board, reason: str) -> Board:
    """The Board of a node whose Ascend driver finds no chip of its own; *reason* says why.

    Known chips stay if they are on the PCI bus: their Ascend driver may be starting.
    """
    silent = _Silent(known, (), host.accelerators())
    if host.is_ascend_present():
        silent.add(NO_ANSWER, f"the Ascend driver has no chip: {reason}")
    chips = tuple(_absent(known, (), silent))
    return replace(
        known,
        chips=chips,
        unanswered=tuple(silent.lines),
        unlisted_accelerators=unlisted_accelerators(chips, host),
    )


def unlisted_accelerators(found: Iterable[Chip], host: Host) -> tuple[str, ...]:
    """Accelerators on the bus without a chip; device nodes, if a chip's address is not known."""
    listed = [chip for chip in found if chip.is_listed]
    addresses = {chip.pci_bus_id for chip in listed}
    if None in addresses:
        nodes = {f"/dev/{name}" for name, _ in host.npu_nodes()}
        return tuple(sorted(nodes - {chip.device_node for chip in listed}))
    return tuple(sorted(set(host.accelerators()) - addresses))


def has_left_bus(chip: Chip, on_bus: Collection[str]) -> bool:
    """Whether a chip is not on the PCI bus; False if the bus, or its place on it, is not known."""
    return bool(on_bus) and chip.pci_bus_id is not None and chip.pci_bus_id not in on_bus


class _Silent:
    """Listed cards and chips that do not answer, wholly or in part; warns of each once.

    Attributes:
        lines: One for each, as text.
        on_bus: PCI addresses of the node's accelerators.
    """

    def __init__(self, known: Board, cards: tuple[int, ...], on_bus: Collection[str]) -> None:
        self.lines: list[str] = []
        self.on_bus = frozenset(on_bus)
        self._known = known
        self._listed = frozenset(cards)
        self._members: set[int | ChipRef] = set()
        self._doubted: set[str] = set()
        if NO_ANSWER in cards:
            self.add(NO_ANSWER, f"{cards.count(NO_ANSWER)} of {len(cards)} cards do not answer")

    def add(self, which: int | ChipRef, line: str) -> None:
        """Note a card id or a chip; warn unless the known Board says the same."""
        self._members.add(which)
        self._warn_unanswered("a card or chip is left out", line)

    def add_facts(self, line: str) -> None:
        """Note that facts were not answered; warn unless the known Board says the same."""
        self._warn_unanswered("facts are not answered", line)

    def known_facts(self, chip: Chip) -> Chip | None:
        """The last known facts of the chip in this place; none of a chip that was gone."""
        known = self._known.by_name.get(chip.name)
        return known if known is not None and known.ref == chip.ref and not known.gone else None

    def is_known(self, ref: ChipRef) -> bool:
        """Whether there was a chip of this name, which has not left."""
        return any(
            chip.ref == ref and not chip.gone and not has_left_bus(chip, self.on_bus)
            for chip in self._known.chips
        )

    def _warn_unanswered(self, message: str, line: str) -> None:
        self.lines.append(line)
        if line not in self._known.unanswered:
            log.warning(message, extra={"problem": line})

    def has(self, chip: Chip) -> bool:
        """Whether a known chip is listed and silent now.

        A card that does not answer is listed without its id. It may be any known card that is not
        listed, unless that was gone before or is not on the PCI bus.
        """
        if chip.name in self._doubted:
            return False
        if chip.card_id not in self._listed:
            is_there = not chip.gone and not has_left_bus(chip, self.on_bus)
            return NO_ANSWER in self._members and is_there
        return not self._members.isdisjoint({chip.card_id, chip.ref})

    def add_doubtful(self, chip: Chip, before: Chip) -> None:
        """Note a chip that may be misread: the last list had another one in its place."""
        self._doubted.add(before.name)
        line = f"{chip.ref}: it says that it is {chip.name}, {chip.family}, with die id {chip.uuid}"
        was = f"{before.name} was {before.family}, {before.uuid} before"
        self._warn_unanswered("a chip may be misread", f"{line}, and {was}")

    def add_unlisted(self, chip: Chip) -> bool:
        """Note a known chip that is not listed, unless that shows that it is gone."""
        if chip.gone or chip.unlisted or has_left_bus(chip, self.on_bus):
            return False
        self._warn_unanswered(
            "a known chip is not listed", f"{chip.ref}: it was listed before and is not now"
        )
        return True


def _sure(known: Board, read: Collection[Chip], silent: _Silent) -> list[Chip]:
    """The chips that are who they were in the last list; the next list decides of others."""
    names = {chip.name for chip in read}
    moved = {one.uuid or one.ref: one for one in known.chips if one.name not in names}
    sure = []
    for chip in read:
        before = known.by_name.get(chip.name) or moved.get(chip.uuid or chip.ref)
        if (
            before is not None
            and (
                (before.name, before.family) != (chip.name, chip.family)
                or before.has_other_die(chip.uuid)
            )
            and before.is_listed
            and not has_left_bus(before, silent.on_bus)
        ):
            silent.add_doubtful(chip, before)
        else:
            sure.append(chip)
    return sure


def _absent(known: Board, answering: Collection[Chip], silent: _Silent) -> Iterator[Chip]:
    """Known chips that did not answer now: silent, unlisted for the first time, or gone.

    A chip is left out if another one has its physical id, or if it has another physical id now. It
    is recognised by its die id, or by its place if that cannot be read.
    """
    ids = {chip.physical_id for chip in answering}
    found = {chip.uuid or chip.ref for chip in answering}
    for chip in known.chips:
        if chip.physical_id not in ids and (chip.uuid or chip.ref) not in found:
            is_silent = silent.has(chip)
            is_unlisted = not is_silent and silent.add_unlisted(chip)
            yield replace(chip, unlisted=is_unlisted, gone=not is_silent and not is_unlisted)


async def _identify_all(
    worker: DcmiWorker, dcmi: Dcmi, cards: tuple[int, ...], silent: _Silent
) -> list[Chip]:
    """The chips on all cards that answer, by their identities."""
    found = []
    for card in dict.fromkeys(cards):
        if card == NO_ANSWER:
            continue
        try:
            refs = await worker.call(dcmi.units, card, device=card)
        except DcmiError as error:
            silent.add(card, f"card {card}: {error}")
            continue
        for ref in refs:
            try:
                chip = await worker.call(chips.identify, dcmi, ref, device=ref)
            except DcmiError as error:
                silent.add(ref, f"{ref}: {error}")
                continue
            if chip is not None:
                found.append(chip)
            elif silent.is_known(ref):
                silent.add(ref, f"{ref}: it says that it is no NPU, and was one before")
    return found


async def _identify_unlisted(
    worker: DcmiWorker, dcmi: Dcmi, known: Board, listed: Iterable[Chip], silent: _Silent
) -> list[Chip]:
    """Known chips that the list lacks, and that answer by their own name all the same."""
    refs, names = {chip.ref for chip in listed}, {chip.name for chip in listed}
    found = []
    for chip in known.chips:
        if chip.gone or silent.has(chip) or has_left_bus(chip, silent.on_bus) or chip.ref in refs:
            continue
        with suppress(DcmiError):
            fresh = await worker.call(chips.identify, dcmi, chip.ref, device=chip.ref)
            if fresh is not None and fresh.name == chip.name and chip.name not in names:
                silent.add_facts(f"{chip.ref}: it answers, but the list of cards lacks it")
                found.append(fresh)
    return found


def _distinct(found: Iterable[Chip], silent: _Silent) -> list[Chip]:
    """Chips with a unique physical id: of two with one id, either may have the device node."""
    by_id: dict[int, list[Chip]] = {}
    for chip in found:
        by_id.setdefault(chip.physical_id, []).append(chip)
    for number, same in by_id.items():
        for chip in same if len(same) > 1 else ():
            silent.add(chip.ref, f"{chip.ref}: physical id {number} is another chip's too")
    return [same[0] for same in by_id.values() if len(same) == 1]


async def _read(worker: DcmiWorker, dcmi: Dcmi, host: Host, chip: Chip, silent: _Silent) -> Chip:
    """One chip with its facts; one that hangs now keeps its name and its known facts."""
    known = silent.known_facts(chip)
    try:
        chip, problem = await worker.call(chips.describe, dcmi, host, chip, known, device=chip.ref)
    except DcmiError as error:
        if known is not None:
            chip = replace(known, logic_id=chip.logic_id, unlisted=False)
        problem = str(error)
    else:
        seconds = HURRIED_SECONDS if worker.written_off else DEADLINE_SECONDS
        network = await read_addresses(worker, dcmi, host, chip, deadline_seconds=seconds)
        chip = replace(chip, network=network)
    if problem:
        silent.add_facts(f"{chip.ref}: {problem}")
    return chip


async def _of_node(
    fact: str, known: T | None, silent: _Silent, read: Callable[[], Awaitable[T | None]]
) -> T | None:
    """A fact of the whole node; its known value if it is empty or not answered."""
    try:
        found = await read()
    except NotSupported:
        return None
    except DcmiError as error:
        silent.add_facts(f"no {fact}: {error}")
        return known
    return known if found == "" else found


async def _read_links(
    worker: DcmiWorker, dcmi: Dcmi, answering: Iterable[Chip], known: Links, silent: _Silent
) -> dict[tuple[int, int], Link]:
    """The link of each pair of chips of one family, if the Ascend driver has it."""
    links: dict[tuple[int, int], Link] = {}
    ordered = sorted(answering, key=lambda chip: chip.physical_id)
    for index, chip in enumerate(ordered):
        others = [other for other in ordered[index + 1 :] if other.family is chip.family]
        if not TRAITS[chip.family].domain_links or not others:
            continue
        try:
            found, problem = await worker.call(
                chips.read_links, dcmi, chip, others, known, device=chip.ref
            )
        except DcmiError as error:
            found, problem = {}, f"no links: {error}"
        links |= found
        if problem:
            silent.add_facts(f"{chip.ref}: {problem}")
    return links


def _placed(found: Iterable[Chip], links: Links) -> tuple[Chip, ...]:
    """Chips in order, with their topology group, and their module where a card has several."""
    ordered = sorted(found, key=lambda chip: chip.physical_id)
    groups = topology_groups(ordered, links)
    on_card = Counter(chip.card_id for chip in ordered)
    return tuple(
        replace(
            chip,
            topology_group=groups.get(chip.physical_id),
            module=f"module-{chip.card_id}" if on_card[chip.card_id] > 1 else None,
        )
        for chip in ordered
    )
