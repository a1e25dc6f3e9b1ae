"""From the library's card list to a Board.

A chip is read in two calls to the worker. The first gives its identity, without which it cannot be
offered; the second its other facts, each of which may be missing. A chip that hangs in the second
call keeps the facts it gave, and does not affect others. The watcher reads health.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from trio_npu_dra.errors import DcmiError
from trio_npu_dra.npu import chip as chips
from trio_npu_dra.npu.chip import Identity
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.types import ChipRef, Link
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, Chip, Links
from trio_npu_dra.npu.partition import read_policy
from trio_npu_dra.npu.topology import topology_groups
from trio_npu_dra.npu.traits import TRAITS

log = logging.getLogger(__name__)

_NO_ANSWER: Final = -1  # in the card list: a card that did not answer

T = TypeVar("T")


async def discover(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, *, known: Board = EMPTY_BOARD
) -> Board:
    """Read all chips of the node; their health is not read.

    A chip that is listed but does not answer stays as it was in *known*, or is left out if it is
    not known. A known chip that has left the PCI bus, or that two lists in a row lack, is gone: it
    stays on the Board, marked so, until it is listed again or another chip has its physical id. One
    short list is no proof: a booting chip is not listed either, and pods lose a chip that is gone.

    Args:
        worker: Runs the calls.
        dcmi: The library, initialised.
        host: Where sysfs is.
        known: The Board of the last listing, or the chips that an earlier process remembered.

    Raises:
        DcmiError: The library cannot even list the cards.
    """
    cards = await worker.call(dcmi.card_list)
    silent = _Silent(known, cards, frozenset(host.accelerators()))
    identities = _distinct(await _identify_all(worker, dcmi, cards, silent), silent)
    answering = [await _read(worker, dcmi, host, identity, silent) for identity in identities]
    found = (*answering, *_absent(known, answering, silent))
    links = _kept(known.links, found) | await _read_links(worker, dcmi, answering)
    board = Board(
        chips=_placed(found, links),
        links=links,
        driver_version=await _ask(worker, dcmi.driver_version) or None,
        multi_die_policy=known.multi_die_policy,
        unanswered=tuple(silent.lines),
    )
    return replace(board, multi_die_policy=await read_policy(worker, dcmi, board))


class _Silent:
    """Cards and chips that are listed but do not answer: each warned of once.

    Attributes:
        lines: One for each, in words.
    """

    def __init__(self, known: Board, cards: tuple[int, ...], on_bus: frozenset[str]) -> None:
        self.lines: list[str] = []
        self._known = known
        self._listed = frozenset(cards)
        self._on_bus = on_bus
        self._members: set[int | ChipRef] = set()
        if _NO_ANSWER in cards:
            self.add(_NO_ANSWER, f"{cards.count(_NO_ANSWER)} of {len(cards)} cards do not answer")

    def add(self, which: int | ChipRef, line: str) -> None:
        """Note a card id or a chip; warn unless the known Board says the same."""
        self._members.add(which)
        self.lines.append(line)
        if line not in self._known.unanswered:
            log.warning("a card or chip is left out", extra={"problem": line})

    def known(self, chip: Chip) -> Chip | None:
        """What was known of the chip; None if it was gone: it may be another one now."""
        known = self._known.by_name.get(chip.name)
        is_same = known is not None and known.ref == chip.ref and not known.gone
        return known if is_same else None

    def with_known_facts(self, chip: Chip, line: str) -> Chip:
        """The chip with its known facts, since they cannot be read now."""
        self.lines.append(line)
        if line not in self._known.unanswered:
            log.warning("facts of a chip are missing", extra={"npu": chip.name, "problem": line})
        known = self.known(chip)
        if known is None:
            return chip
        return replace(known, logic_id=chip.logic_id, unlisted=False)

    def has(self, chip: Chip) -> bool:
        """Whether a known chip is listed and silent now.

        A card that does not answer is listed without its id. It may be any known card that is not
        listed, unless that was gone before or is not on the PCI bus.
        """
        if chip.card_id not in self._listed:
            return _NO_ANSWER in self._members and not chip.gone and not self._has_left_bus(chip)
        return not self._members.isdisjoint({chip.card_id, chip.ref})

    def add_unlisted(self, chip: Chip) -> bool:
        """Note a known chip that is not listed, unless that shows that it is gone."""
        if chip.gone or chip.unlisted or self._has_left_bus(chip):
            return False
        self.lines.append(f"{chip.ref}: it was listed before and is not now")
        log.warning("a known chip is not listed", extra={"npu": chip.name})
        return True

    def _has_left_bus(self, chip: Chip) -> bool:
        """False if the bus or the chip's place on it is not known."""
        is_known = bool(self._on_bus) and chip.pci_bus_id is not None
        return is_known and chip.pci_bus_id not in self._on_bus


def _absent(known: Board, answering: Collection[Chip], silent: _Silent) -> Iterator[Chip]:
    """Known chips that did not answer now: silent, not listed for the first time, or gone.

    A chip is left out if another one has its physical id, or if it has another physical id now. A
    chip is known here by its die id, or by its place if that cannot be read.
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
) -> list[Identity]:
    """The chips on all cards that answer."""
    identities = []
    for card in dict.fromkeys(cards):
        if card == _NO_ANSWER:
            continue
        try:
            refs = await worker.call(dcmi.units, card, device=card)
        except DcmiError as error:
            silent.add(card, f"card {card}: {error}")
            continue
        for ref in refs:
            try:
                identity = await worker.call(chips.identify, dcmi, ref, device=ref)
            except DcmiError as error:
                silent.add(ref, f"{ref}: {error}")
                continue
            if identity is not None:
                identities.append(identity)
    return identities


def _distinct(identities: Iterable[Identity], silent: _Silent) -> list[Identity]:
    """Chips with a unique physical id.

    Of two with one id, we cannot know which has the device node.
    """
    by_id: dict[int, list[Identity]] = {}
    for identity in identities:
        by_id.setdefault(identity.physical_id, []).append(identity)
    for number, same in by_id.items():
        for identity in same if len(same) > 1 else ():
            line = f"{identity.ref}: physical id {number} is another chip's too"
            silent.add(identity.ref, line)
    return [same[0] for same in by_id.values() if len(same) == 1]


async def _read(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, identity: Identity, silent: _Silent
) -> Chip:
    """One chip with its facts; one that hangs now keeps its name and its known facts."""
    chip = chips.name_only(dcmi, identity)
    if (known := silent.known(chip)) is not None:
        chip = replace(chip, vnpus=known.vnpus, device_share=known.device_share)
    try:
        return await worker.call(chips.describe, dcmi, host, chip, device=chip.ref)
    except DcmiError as error:
        return silent.with_known_facts(chip, f"{chip.ref}: {error}")


async def _ask(worker: DcmiWorker, read: Callable[[], T]) -> T | None:
    """A fact of the whole node; None if it cannot be read."""
    try:
        return await worker.call(read)
    except DcmiError as error:
        log.debug("no answer", extra={"error": str(error)})
        return None


def _kept(links: Links, found: Iterable[Chip]) -> dict[tuple[int, int], Link]:
    """The known links of chips on the Board: those of a silent one cannot be read."""
    ids = {chip.physical_id for chip in found}
    return {pair: link for pair, link in links.items() if ids.issuperset(pair)}


async def _read_links(
    worker: DcmiWorker, dcmi: Dcmi, answering: Iterable[Chip]
) -> dict[tuple[int, int], Link]:
    """The link of each pair of chips of one family, if the Ascend driver has it."""
    links: dict[tuple[int, int], Link] = {}
    ordered = sorted(answering, key=lambda chip: chip.physical_id)
    for index, chip in enumerate(ordered):
        others = [other for other in ordered[index + 1 :] if other.family is chip.family]
        if not TRAITS[chip.family].domain_links or not others:
            continue
        try:
            links |= await worker.call(chips.read_links, dcmi, chip, others, device=chip.ref)
        except DcmiError as error:
            log.debug("no links", extra={"chip": str(chip.ref), "error": str(error)})
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
