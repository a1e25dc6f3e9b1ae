"""The node drawn as SVG: NUMA nodes, PCIe roots, cards, HCCS domains, health, and holders.

The same topology gives the same text. Every fact is in text too, never in colour alone, and the
picture has a title and a description for people who cannot see it. Its colours follow the viewer's
light or dark mode.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias, TypeVar
from xml.sax.saxutils import escape

from trio_npu_dra.ascend.model import Chip, FaultLevel
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.tools.cli.topology import MEANINGS, Topology, super_pods

# Lengths are in units of the picture, which are pixels unless it is scaled.
_CHIP_WIDTH: Final = 144
_CHIP_HEIGHT: Final = 84
_GAP: Final = 12
_HEADER: Final = 26
_LINE: Final = 18
_TRACK: Final = 18  # what one HCCS domain takes below a row, and at the left
_LEAST_WIDTH: Final = 420

_CHIPS_IN_ROW: Final = 4
_LETTERS: Final = 20  # of a line within a chip
_COLOURS: Final = 4

_SIGNS: Final = {HealthState.HEALTHY: "✓", HealthState.UNHEALTHY: "✕", HealthState.UNKNOWN: "?"}

_STYLE: Final = """\
text { font: 12px ui-sans-serif, system-ui, "Segoe UI", sans-serif; fill: #1f2328 }
text.name { font-weight: 600 }
text.quiet { fill: #59636e }
.page, .chip { fill: #ffffff }
.numa { fill: #f6f8fa; stroke: #818b98 }
.root { fill: none; stroke: #818b98; stroke-dasharray: 2 3 }
.module { fill: none; stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 7 4 }
.chip { stroke: #59636e }
.Unhealthy { stroke: #cf222e; stroke-width: 3 }
.Unknown { stroke-width: 2; stroke-dasharray: 4 3 }
.ring { fill: none; stroke-width: 4; stroke-linecap: round }
.ring0 { stroke: #2f81f7 }
.ring1 { stroke: #d4730b }
.ring2 { stroke: #2da44e }
.ring3 { stroke: #a371f7 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
text.quiet { fill: #9198a1 }
.page, .chip { fill: #0d1117 }
.numa { fill: #151b23; stroke: #656c76 }
.root { stroke: #656c76 }
.module, .chip { stroke: #9198a1 }
.Unhealthy { stroke: #f85149 }
}"""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """A box around parts that are beside each other.

    Attributes:
        kind: Its class in the style.
        name: What it is, at the left.
        aside: More of it, at the right.
        parts: What is in it.
    """

    kind: str
    name: str
    aside: str = ""
    parts: tuple[_Part, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        widths, heights = zip(*map(_size, self.parts), strict=True)
        return sum(widths) + _GAP * (len(widths) + 1), _HEADER + max(heights) + _GAP


_Part: TypeAlias = _Frame | Chip


def _size(part: _Part) -> tuple[int, int]:
    return (_CHIP_WIDTH, _CHIP_HEIGHT) if isinstance(part, Chip) else part.size


def draw(topology: Topology) -> str:
    """The picture, as the text of an SVG file."""
    canvas = _Canvas(topology)
    title = f"The NPUs of {topology.node or 'this node'}"
    canvas.text(_GAP, _GAP + 14, title, kind="name")
    canvas.draw_all()
    for line in _footer(topology):
        canvas.bottom += _LINE
        canvas.text(_GAP, canvas.bottom - 4, line, kind="quiet")
    width, height = max(canvas.right, _LEAST_WIDTH), canvas.bottom + _GAP
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
            f'width="{width}" height="{height}" role="img" aria-labelledby="title desc">',
            f'<title id="title">{_escaped(title)}</title>',
            f'<desc id="desc">{_escaped(" ".join(_sentences(topology)))}</desc>',
            f"<style>\n{_STYLE}\n</style>",
            f'<rect class="page" width="{width}" height="{height}"/>',
            *canvas.lines,
            "</svg>\n",
        )
    )


# --- what belongs together -----------------------------------------------------------------------


def _by(chips: Iterable[Chip], key: Callable[[Chip], Key]) -> dict[Key, list[Chip]]:
    found: dict[Key, list[Chip]] = {}
    for chip in chips:
        found.setdefault(key(chip), []).append(chip)
    return found


def _numa_nodes(chips: Iterable[Chip]) -> list[list[Chip]]:
    """The chips of each NUMA node, by its number; those of which it is not known come last."""
    found = _by(chips, lambda chip: chip.numa_node)
    return [found[number] for number in sorted(found, key=lambda one: (one is None, one or 0))]


def _rows(chips: Iterable[Chip]) -> Iterator[list[list[Chip]]]:
    """NUMA nodes beside each other, as long as a row has few chips."""
    row: list[list[Chip]] = []
    for members in _numa_nodes(chips):
        if row and sum(map(len, row)) + len(members) > _CHIPS_IN_ROW:
            yield row
            row = []
        row.append(members)
    if row:
        yield row


def _numa_frame(topology: Topology, chips: Sequence[Chip]) -> _Frame:
    """A NUMA node with its PCIe roots, in these the cards, and the dies of each."""
    cpus = dict.fromkeys(topology.cpus[chip.name] for chip in chips if chip.name in topology.cpus)
    return _Frame(
        kind="numa",
        name=_numa_name(chips[0]),
        aside=f"CPUs {', '.join(cpus)}" if cpus else "",
        parts=tuple(
            _Frame(kind="root", name=_root_name(members[0]), parts=_cards(members))
            for members in _by(chips, lambda chip: chip.pcie_root).values()
        ),
    )


def _cards(chips: Sequence[Chip]) -> tuple[_Part, ...]:
    """A frame for each card of several dies, and the chips that are alone on theirs."""
    return tuple(
        chain.from_iterable(
            dies if module is None else [_Frame(kind="module", name=module, parts=tuple(dies))]
            for module, dies in _by(chips, lambda chip: chip.module).items()
        )
    )


# --- drawing -------------------------------------------------------------------------------------


@dataclass
class _Canvas:
    """The picture so far.

    Attributes:
        topology: What is drawn.
        lines: Its elements.
        right: Where the next thing at the right may be.
        bottom: Where the next thing below may be.
    """

    topology: Topology
    lines: list[str] = field(default_factory=list)
    right: int = 0
    bottom: int = _GAP + _HEADER
    _feet: dict[str, tuple[int, int]] = field(default_factory=dict)

    def draw_all(self) -> None:
        """All NUMA nodes, and the HCCS domains that connect them."""
        chips = self.topology.board.chips
        rings = _by(
            (chip for chip in chips if chip.topology_group), lambda chip: chip.topology_group
        )
        rails: dict[int, list[int]] = {}
        for row in _rows(chips):
            x, top = _GAP + _TRACK * len(rings), self.bottom
            for members in row:
                frame = _numa_frame(self.topology, members)
                self._draw(frame, x, top)
                x, self.bottom = x + frame.size[0] + _GAP, max(self.bottom, top + frame.size[1])
            self.right = max(self.right, x)
            here = [chip for members in row for chip in members]
            for number, ring in enumerate(rings):
                if feet := [self._feet[chip.name] for chip in here if chip.topology_group == ring]:
                    self.bottom += _TRACK
                    rails.setdefault(number, []).append(self.bottom)
                    self._draw_rail(number, feet)
            self.bottom += _GAP * 2
        for (ring, members), number in zip(rings.items(), rails, strict=True):
            self._draw_trunk(number, rails[number], f"{ring}: {len(members)} NPUs")

    def text(self, x: int, y: int, words: str, *, kind: str = "", end: int | None = None) -> None:
        """Text from *x* on, or up to *end*."""
        style = f' class="{kind}"' if kind else ""
        place = f'x="{x}"' if end is None else f'x="{end}" text-anchor="end"'
        self.lines.append(f'<text {place} y="{y}"{style}>{_escaped(words)}</text>')

    def _box(self, kind: str, x: int, y: int, size: tuple[int, int]) -> None:
        place = f'x="{x}" y="{y}" width="{size[0]}" height="{size[1]}"'
        self.lines.append(f'<rect class="{kind}" {place} rx="6"/>')

    def _draw(self, part: _Part, x: int, y: int) -> None:
        if isinstance(part, Chip):
            self._draw_chip(part, x, y)
            return
        self._box(part.kind, x, y, part.size)
        self.text(x + _GAP, y + _LINE, part.name, kind="name" if part.kind == "numa" else "")
        if part.aside:
            self.text(x, y + _LINE, part.aside, kind="quiet", end=x + part.size[0] - _GAP)
        for inner in part.parts:
            self._draw(inner, x + _GAP, y + _HEADER)
            x += _GAP + _size(inner)[0]

    def _draw_chip(self, chip: Chip, x: int, y: int) -> None:
        self.lines.append(f"<g><title>{_escaped(_in_words(self.topology, chip))}</title>")
        kind = f"chip {chip.health.state.value}"
        self._box(kind, x, y, (_CHIP_WIDTH, _CHIP_HEIGHT))
        self.text(x + 8, y + _LINE, chip.name, kind="name")
        self.text(x, y + _LINE, chip.chip_name, kind="quiet", end=x + _CHIP_WIDTH - 8)
        held = ", ".join(self.topology.holders(chip))
        health = chip.health
        is_named = health.level is not FaultLevel.NORMAL
        state = health.level.value if is_named else health.state.value
        lines = (
            (f"{_SIGNS[health.state]} {state}", ""),
            (chip.pci_bus_id or "", "quiet"),
            (held, ""),
        )
        for number, (words, style) in enumerate(lines, start=2):
            short = words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1]}…"
            if short:
                self.text(x + 8, y + _LINE * number, short, kind=style)
        self.lines.append("</g>")
        self._feet[chip.name] = (x + _CHIP_WIDTH // 2, y + _CHIP_HEIGHT)

    def _draw_rail(self, number: int, feet: Sequence[tuple[int, int]]) -> None:
        """A line below a row, with a stem to each chip of the domain, to the trunk at the left."""
        left, y = _GAP + _TRACK * number, self.bottom
        stems = "".join(f"M{x} {foot}V{y}" for x, foot in feet)
        self._line(number, f"M{left} {y}H{feet[-1][0]}{stems}")

    def _draw_trunk(self, number: int, rails: Sequence[int], words: str) -> None:
        """What joins the rails of a domain, and its name below all rows."""
        x = _GAP + _TRACK * number
        if len(rails) > 1:
            self._line(number, f"M{x} {rails[0]}V{rails[-1]}")
        self.bottom += _LINE
        self._line(number, f"M{_GAP} {self.bottom - 8}h{_TRACK}")
        self.text(_GAP * 2 + _TRACK, self.bottom - 4, words)

    def _line(self, number: int, path: str) -> None:
        self.lines.append(f'<path class="ring ring{number % _COLOURS}" d="{path}"/>')


# --- words ---------------------------------------------------------------------------------------


def _numa_name(chip: Chip) -> str:
    return "NUMA node not known" if chip.numa_node is None else f"NUMA node {chip.numa_node}"


def _root_name(chip: Chip) -> str:
    return chip.pcie_root or "PCIe root not known"


def _in_words(topology: Topology, chip: Chip) -> str:
    """All that the picture says of a chip."""
    held = ", ".join(topology.holders(chip))
    facts = (
        chip.chip_name,
        " ".join(filter(None, (chip.health.state.value, chip.health.message))),
        chip.module,
        chip.topology_group,
        chip.pci_bus_id,
        f"held by {held}" if held else None,
    )
    return f"{chip.name} ({', '.join(filter(None, facts))})"


def _sentences(topology: Topology) -> Iterator[str]:
    """The picture for people who cannot see it."""
    if not topology.board.chips:
        yield "No NPU was found."
    for members in _numa_nodes(topology.board.chips):
        for chips in _by(members, lambda chip: chip.pcie_root).values():
            words = ", ".join(_in_words(topology, chip) for chip in chips)
            yield f"{_numa_name(chips[0])}, {_root_name(chips[0])}: {words}."


def _footer(topology: Topology) -> Iterator[str]:
    """What the picture does not say by itself, and what could not be read."""
    chips = topology.board.chips
    if not chips:
        yield "no NPU found"
    codes = {
        topology.code(one, other)
        for one in chips
        for other in chips
        if one is not other and one.topology_group and one.topology_group == other.topology_group
    }
    yield from (f"within a ring: {MEANINGS[code]}" for code in MEANINGS if code in codes)
    yield from super_pods(topology.board)
    if any(topology.holders(chip) for chip in chips):
        yield "last line of an NPU: the claim that holds it"
    if chips and topology.holds is None:
        yield "the holders of the NPUs are unknown: the driver's records cannot be read"
    yield from topology.board.unanswered


def _escaped(words: str) -> str:
    """Text escaped for XML; what XML cannot have is a replacement character."""
    allowed = (one if one >= " " and one not in "\ufffe\uffff" else "\ufffd" for one in words)
    return escape("".join(allowed))
