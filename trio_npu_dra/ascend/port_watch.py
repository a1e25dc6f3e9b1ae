"""Follow the RoCE ports of chips: whether each is well, and which addresses it has."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

import trio

from trio_npu_dra.ascend.chip_network import read_addresses
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.health import read_network
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Chip, ChipNetwork
from trio_npu_dra.ascend.read_schedule import QUIET_INTERVALS
from trio_npu_dra.kit.base import watchdog

log = logging.getLogger(__name__)

_STUCK_SECONDS: Final = 120.0  # other calls, even `init`, may run before this one


@dataclass(eq=False, kw_only=True)
class PortWatch:
    """Asks ports in a task of its own: on a dropped card that blocks.

    Attributes:
        faults: Get the problems of ports.
        chips: Those of the last list.
        on_silence: Called with a chip whose port does not answer, or that has none.
        on_problem: Called when a port's problem has changed.
        on_addresses: Called with a chip and the addresses of its port.
    """

    worker: DcmiWorker
    dcmi: Dcmi
    host: Host
    faults: NodeFaults
    chips: Callable[[], Sequence[Chip]]
    on_silence: Callable[[Chip], object]
    on_problem: Callable[[], object]
    on_addresses: Callable[[Chip, ChipNetwork | None], object]
    _portless: set[str] = field(default_factory=set)
    _changed: set[str] = field(default_factory=set)

    async def follow(self, interval_seconds: float) -> None:
        """Ask each chip for its port in each interval, so that each gives a sign of life.

        One without a port may get one. Addresses are read when the port has changed, and now and
        then, because no event tells of a new one.
        """
        for number in count():
            is_quiet = number % QUIET_INTERVALS != 0
            for chip in self.chips():
                if not chip.is_listed or self.faults.of(chip).is_gone:
                    continue
                is_known_portless = chip.name in self._portless and is_quiet
                if is_known_portless or not await self._ask(chip):
                    self.on_silence(chip)
                elif chip.name in self._changed or (number and not is_quiet):
                    self._changed.discard(chip.name)
                    with watchdog.step(
                        f"reading the addresses of {chip.name}", limit=_STUCK_SECONDS
                    ):
                        found = await read_addresses(self.worker, self.dcmi, self.host, chip)
                    self.on_addresses(chip, found)
            await trio.sleep(interval_seconds)

    def note_change(self, chip: Chip) -> None:
        """Have the addresses of a chip's port read in the next interval."""
        self._changed.add(chip.name)

    async def _ask(self, chip: Chip) -> bool:
        """Whether the port answers."""
        on_late = partial(self._take, chip)
        self._portless.discard(chip.name)
        try:
            with watchdog.step(f"asking for the network of {chip.name}", limit=_STUCK_SECONDS):
                problem = await read_network(self.worker, self.dcmi, chip.ref, on_late=on_late)
        except DcmiError as error:  # the known state of the port stands
            if isinstance(error, NotSupported):
                self._portless.add(chip.name)
            log.debug("network health not read", extra={"npu": chip.name, "error": str(error)})
            return False
        self._take(chip, problem)
        return True

    def _take(self, chip: Chip, problem: str) -> None:
        """Note the problem of a chip's port; empty if it has none."""
        faults = self.faults.of(chip)
        if problem != faults.network:
            faults.network = problem
            self.note_change(chip)
            self.on_problem()
