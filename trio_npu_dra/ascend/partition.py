"""A partition of a chip, told apart from the others; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Which partition of a chip somebody has.

    Attributes:
        template: What it was cut by.
        number: Of those of the template that could exist at once; None for one that was cut by
            hand.
        vnpu: The id of the vNPU that it is; None as long as it is not cut.
    """

    template: str
    number: int | None = None
    vnpu: int | None = None

    @property
    def on_demand(self) -> bool:
        """Whether it is cut when somebody gets it."""
        return self.number is not None

    @property
    def key(self) -> tuple[str, int | None]:
        """What tells the partitions of one chip apart that can be offered; `is_same` those held."""
        return (self.template, self.number) if self.on_demand else ("", self.vnpu)

    def is_same(self, other: Partition) -> bool:
        """Whether both are one partition of their chip: one wanted partition, or one vNPU.

        A vNPU that was cut on demand looks to another instance as if somebody had cut it by hand.
        """
        return self.key == other.key or (self.vnpu is not None and self.vnpu == other.vnpu)

    @property
    def device_node(self) -> str:
        """Its character device on the host; empty as long as it is not cut."""
        return "" if self.vnpu is None else vnpu_node(self.vnpu)


def vnpu_node(vnpu: int) -> str:
    """The character device of a vNPU on the host."""
    return f"/dev/vdavinci{vnpu}"
