"""What claims are to have of a node whose NPUs are cut and shared, and who excludes whom."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from hypothesis import strategies as st

from tests.claims.node import claim, config, result
from trio_npu_dra.kit.api.objects import ResourceClaim

PARTITIONS = (
    *(f"npu-0-vir05-1c-8g-{number}" for number in range(3)),
    *("npu-0-vir10-3c-16g-0", "npu-1-vir05-1c-8g-0"),
)
CHIPS = {"npu-0": {0}, "npu-1": {1}, "module-1": {2, 3}} | {
    partition: {int(partition[4])} for partition in PARTITIONS
}
SHARED_CONFIG = {
    "apiVersion": "npu.huawei.com/v1alpha1",
    "kind": "NpuConfig",
    "sharing": {"strategy": "Shared"},
}


class Way(Enum):
    """How a claim has what is no partition."""

    OWN = auto()
    BY_CONFIG = auto()
    BY_SHARES = auto()


@dataclass(frozen=True)
class Wish:
    """What a claim is to have.

    Attributes:
        devices: Names.
        way: How it has those that are no partitions.
    """

    devices: frozenset[str]
    way: Way = Way.OWN

    @property
    def partitions(self) -> frozenset[str]:
        """Those that are."""
        return self.devices & {*PARTITIONS}

    @property
    def shared_chips(self) -> set[int]:
        """The chips whose flag must be set; an A3 card has one for both dies."""
        shared = self.devices - self.partitions if self.way is not Way.OWN else ()
        return {chip for device in shared for chip in CHIPS[device]}

    def excludes(self, other: Wish) -> bool:
        """Whether both cannot be."""
        are_shares = self.way is other.way is Way.BY_SHARES
        return any(
            CHIPS[one] & CHIPS[two]
            and not (one == two and one not in PARTITIONS and are_shares)
            and not (one != two and {one, two} <= {*PARTITIONS})
            for one in self.devices
            for two in other.devices
        )

    def claim(self, uid: str) -> ResourceClaim:
        """The claim as the API server has it."""
        whole = sorted(self.devices - self.partitions)
        share = f"share-{uid}" if self.way is Way.BY_SHARES else None
        results = [
            *(result(device, "whole", share_id=share) for device in whole),
            *(result(device, "partition") for device in sorted(self.partitions)),
        ]
        by_config = self.way is Way.BY_CONFIG and whole
        configs = [config("FromClaim", SHARED_CONFIG, "whole")] if by_config else []
        return claim(uid.removeprefix("uid-"), *results, config=configs)


some_wishes = st.builds(
    Wish,
    st.frozensets(st.sampled_from([*CHIPS]), min_size=1, max_size=3).filter(
        lambda names: all(
            one == two or not CHIPS[one] & CHIPS[two] or {one, two} <= {*PARTITIONS}
            for one in names
            for two in names
        )
    ),
    st.sampled_from([Way.OWN, *Way]),
)
