"""The identity of a partition of a chip. Pure."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a chip, cut or not.

    Attributes:
        template: The vendor's template that it is cut by.
        number: Its number among the partitions of the template that fit at once; None for one that
            was created manually.
        vnpu: The id of its vNPU; None until it is cut.
    """

    template: str
    number: int | None = None
    vnpu: int | None = None

    @property
    def on_demand(self) -> bool:
        """Whether it is cut when a claim gets it."""
        return self.number is not None

    @property
    def key(self) -> tuple[str, int | None]:
        """Its identity among the partitions of a chip that are offered; see `is_same`."""
        return (self.template, self.number) if self.on_demand else ("", self.vnpu)

    def is_same(self, other: Self) -> bool:
        """Whether both are one partition of their chip: one wanted partition, or one vNPU.

        A vNPU that was cut on demand looks created manually once its record is lost.
        """
        return self.key == other.key or (self.vnpu is not None and self.vnpu == other.vnpu)

    @property
    def device_node(self) -> str:
        """Its character device on the host; empty until it is cut."""
        return "" if self.vnpu is None else vnpu_node(self.vnpu)


def vnpu_node(vnpu: int) -> str:
    """The character device of a vNPU on the host."""
    return f"/dev/vdavinci{vnpu}"
