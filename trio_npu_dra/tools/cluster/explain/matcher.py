"""Selectors held against devices, each once; and what is made of answers that we cannot give."""

from __future__ import annotations

from dataclasses import dataclass, field

from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided
from trio_npu_dra.tools.cluster.cel.selector import Decide
from trio_npu_dra.tools.cluster.explain.wanted import Cel, Wanted
from trio_npu_dra.tools.cluster.inventory import PlacedDevice


@dataclass(slots=True)
class Matcher:
    """Answers whether selectors admit devices; an answer that we cannot give counts as yes.

    Attributes:
        decide: Holds one selector against one device.
        undecided: Why we could not answer; the first reason, empty if we always could.
    """

    decide: Decide
    undecided: str = ""
    _known: dict[tuple[str, str, str, str], bool | Exception] = field(default_factory=dict)

    def __call__(self, wanted: Wanted, placed: PlacedDevice) -> bool:
        """Whether all selectors of class and request admit a device.

        Raises:
            SelectorFails: One fails; the message names it and the device.
        """
        return all(self.admits(cel, placed) for cel in (*wanted.class_selectors, *wanted.selectors))

    def admits(self, cel: Cel, placed: PlacedDevice) -> bool:
        """Whether one selector admits a device.

        Raises:
            SelectorFails: It fails.
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
            self.undecided = self.undecided or f"{answer}, in the selector of {cel.origin}"
            return True
        return answer

    def with_nothing_undecided(self) -> Matcher:
        """One with the same knowledge that has not yet failed to answer."""
        return Matcher(self.decide, _known=self._known)
