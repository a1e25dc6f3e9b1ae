"""Selectors held against devices, each once."""

from __future__ import annotations

from dataclasses import dataclass, field

from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided
from trio_npu_dra.tools.cluster.cel.selector import Decide
from trio_npu_dra.tools.cluster.explain.wanted import Cel, Wanted
from trio_npu_dra.tools.cluster.inventory import PlacedDevice


@dataclass(frozen=True, slots=True)
class Matcher:
    """Answers whether selectors admit devices; *decide* holds one against one device."""

    decide: Decide
    _known: dict[tuple[str, ...], bool | Exception] = field(default_factory=dict)

    def __call__(self, wanted: Wanted, placed: PlacedDevice) -> bool:
        """Whether all selectors of class and request admit a device.

        Raises:
            SelectorFails: One fails; the message names it and the device.
            Undecided: We cannot tell; the message names the selector.
        """
        return all(self.admits(cel, placed) for cel in (*wanted.class_selectors, *wanted.selectors))

    def admits(self, cel: Cel, placed: PlacedDevice) -> bool:
        """Whether one selector admits a device.

        Raises:
            SelectorFails: It fails.
            Undecided: We cannot tell.
        """
        key = (cel.expression, *placed.id)
        if key not in self._known:
            try:
                self._known[key] = self.decide(cel.expression, placed.id.driver, placed.device)
            except (SelectorFails, Undecided) as error:
                self._known[key] = error
        answer = self._known[key]
        if isinstance(answer, SelectorFails):
            raise SelectorFails(
                f"the selector of {cel.origin} fails for {placed.id.name} of pool "
                f"{placed.id.pool}: {answer}: {cel.expression}"
            ) from answer
        if isinstance(answer, Exception):
            raise Undecided(f"{answer}, in the selector of {cel.origin}") from answer
        return answer
