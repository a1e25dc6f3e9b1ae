"""From the library's card list to a Board.

A chip is read in two calls to the worker: its identity, without which it cannot be offered, and its
other facts, each of which may be missing. So a chip that hangs half-way is known by what it said,
and takes nobody with it. How chips are is the watcher's to tell.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeVar

from trio_npu_dra.errors import DcmiError
from trio_npu_dra.npu import chip, topology
from trio_npu_dra.npu.chip import Identity
from trio_npu_dra.npu.dcmi.client import Address, Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.families import has_hccs
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, Chip, ChipFamily

log = logging.getLogger(__name__)

_NO_ANSWER: Final = -1  # stands in the card list for a card that did not answer

T = TypeVar("T")


async def discover(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, *, known: Board = EMPTY_BOARD
) -> Board:
    """Read all NPUs of the node.

    A chip that is listed but does not answer stays as it was in *known*, or is left out when
    nothing is known of it. The health of the others is not read.

    Args:
        worker: Runs the calls.
        dcmi: The library, initialised.
        host: Where sysfs is.
        known: The Board of the last look.

    Raises:
        DcmiError: The library cannot even list the cards.
    """
    cards = await worker.call(dcmi.card_list)
    silent = _Silent(known, cards)
    identities = _distinct(await _identify_all(worker, dcmi, cards, silent), silent)
    npus = [await _read(worker, dcmi, host, identity, silent) for identity in identities]
    told = {npu.physical_id for npu in npus}
    npus += [npu for npu in silent.npus() if npu.physical_id not in told]
    groups = await _topology_groups(worker, dcmi, identities)
    if silent.lines:
        # A domain looks smaller, or like none, while a chip of it is silent: keep what was seen.
        groups |= {npu.physical_id: npu.topology_group for npu in known.chips if npu.topology_group}
    has_a3 = any(npu.family is ChipFamily.ASCEND_910_A3 for npu in npus)
    return Board(
        chips=_placed(npus, groups),
        driver_version=await _ask(worker, dcmi.driver_version) or None,
        multi_die_policy=await _ask(worker, dcmi.multi_die_policy) if has_a3 else None,
        unanswered=tuple(silent.lines),
    )


class _Silent:
    """Cards and chips that are listed but do not answer: each warned of once.

    Attributes:
        lines: One for each, in words.
    """

    def __init__(self, known: Board, cards: tuple[int, ...]) -> None:
        self.lines: list[str] = []
        self._known = known
        self._listed = frozenset(cards)
        self._members: set[int | Address] = set()
        if _NO_ANSWER in cards:
            self.add(_NO_ANSWER, f"{cards.count(_NO_ANSWER)} of {len(cards)} cards do not answer")

    def add(self, which: int | Address, line: str) -> None:
        """Note a card id or a chip; warn unless the known Board says the same."""
        self._members.add(which)
        self.lines.append(line)
        if line not in self._known.unanswered:
            log.warning("left out: %s", line)

    def with_known_facts(self, npu: Chip, line: str) -> Chip:
        """The NPU with the facts that are known of it, as it does not tell them now."""
        self.lines.append(line)
        if line not in self._known.unanswered:
            log.warning("facts missing: %s", line, extra={"npu": npu.name})
        known = self._known.by_name.get(npu.name, npu)
        is_same = (known.card_id, known.device_id) == (npu.card_id, npu.device_id)
        return replace(known, logic_id=npu.logic_id) if is_same else npu

    def npus(self) -> list[Chip]:
        """The known NPUs that are silent now; known ones that are not even listed are gone."""
        return [npu for npu in self._known.chips if self._has(npu)]

    def _has(self, npu: Chip) -> bool:
        if npu.card_id not in self._listed:
            return _NO_ANSWER in self._members
        return not self._members.isdisjoint({npu.card_id, Address(npu.card_id, npu.device_id)})


async def _identify_all(
    worker: DcmiWorker, dcmi: Dcmi, cards: tuple[int, ...], silent: _Silent
) -> list[Identity]:
    """The NPUs on all cards that answer."""
    identities = []
    for card in dict.fromkeys(cards):
        if card == _NO_ANSWER:
            continue
        try:
            addresses = await worker.call(chip.npus_on_card, dcmi, card, device=card)
        except DcmiError as error:
            silent.add(card, f"card {card}: {error}")
            continue
        for address in addresses:
            try:
                identities.append(await worker.call(chip.identify, dcmi, address, device=address))
            except DcmiError as error:
                silent.add(address, f"card {card} device {address.device_id}: {error}")
    return identities


def _distinct(identities: Iterable[Identity], silent: _Silent) -> list[Identity]:
    """Those whose physical id no other chip tells: which has that device node is not known."""
    by_id: dict[int, list[Identity]] = {}
    for identity in identities:
        by_id.setdefault(identity.physical_id, []).append(identity)
    for number, same in by_id.items():
        for identity in same if len(same) > 1 else ():
            card, device = identity.address
            line = f"card {card} device {device}: physical id {number} is another chip's too"
            silent.add(identity.address, line)
    return [same[0] for same in by_id.values() if len(same) == 1]


async def _read(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, identity: Identity, silent: _Silent
) -> Chip:
    """One NPU with its facts; a chip that hangs now keeps its name, and what is known of it."""
    npu, address = chip.name_only(identity), identity.address
    try:
        return await worker.call(chip.describe, dcmi, host, npu, device=address)
    except DcmiError as error:
        return silent.with_known_facts(npu, f"card {npu.card_id} device {npu.device_id}: {error}")


async def _ask(worker: DcmiWorker, read: Callable[[], T]) -> T | None:
    """A fact of the whole node, None where the library has no answer."""
    try:
        return await worker.call(read)
    except DcmiError as error:
        log.debug("no answer", extra={"error": str(error)})
        return None


async def _topology_groups(
    worker: DcmiWorker, dcmi: Dcmi, identities: list[Identity]
) -> dict[int, str]:
    """Name of the HCCS domain by physical id."""
    domains: list[topology.PhysicalIds] = []
    for family in ChipFamily:
        members = [identity for identity in identities if identity.family is family]
        ids = frozenset(member.physical_id for member in members)
        if family is ChipFamily.ASCEND_910:
            domains += topology.domains_of_910(ids)
        elif family in topology.FAMILIES_WITH_LINKS and len(members) > 1:
            links = await _links(worker, dcmi, members)
            domains += topology.domains_by_links(family, links)
        elif len(members) == 1 and has_hccs(family, members[0].board_id):
            domains.append(ids)  # nobody to ask its link to: the board decides
    return topology.name_groups(domains)


async def _links(
    worker: DcmiWorker, dcmi: Dcmi, members: list[Identity]
) -> dict[tuple[int, int], int]:
    """DCMI's link number for each pair of chips that answers."""
    links: dict[tuple[int, int], int] = {}
    for index, one in enumerate(members[:-1]):
        others = members[index + 1 :]
        try:
            links |= await worker.call(chip.links, dcmi, one, others, device=one.address)
        except DcmiError as error:
            log.debug("no links", extra={"chip": one.address, "error": str(error)})
    return links


def _placed(npus: Iterable[Chip], groups: dict[int, str]) -> tuple[Chip, ...]:
    """NPUs in order, with their topology group, and their module where a card has several."""
    ordered = sorted(npus, key=lambda npu: npu.physical_id)
    on_card = Counter(npu.card_id for npu in ordered)
    return tuple(
        replace(
            npu,
            topology_group=groups.get(npu.physical_id),
            module=f"module-{npu.card_id}" if on_card[npu.card_id] > 1 else None,
        )
        for npu in ordered
    )
