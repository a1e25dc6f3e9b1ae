"""The devices that claims want of a node whose NPUs are cut and shared, and their exclusion."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from hypothesis import strategies as st

from tests.claims.marking import MARKED
from tests.claims.node import claim, config, result
from trio_npu_dra.kit.api.objects import ResourceClaim

PARTITIONS = (
    *(f"npu-0-vir05-1c-8g-{number}" for number in range(3)),
    *("npu-0-vir10-3c-16g-0", "npu-1-vir05-1c-8g-0"),
)
MODULE = "module-1"
WHOLE = {"npu-0": {0}, "npu-1": {1}, "npu-2": {2}, "npu-3": {3}, MODULE: {2, 3}}
"""Devices of whole chips: two NPUs, and an A3 card whose dies go together or one by one."""
CHIPS = WHOLE | {partition: {int(partition[4])} for partition in PARTITIONS}
SHARED_CONFIG = {
    "apiVersion": "npu.huawei.com/v1alpha1",
    "kind": "NpuConfig",
    "sharing": {"strategy": "Shared"},
}


class Way(Enum):
    """How a claim has whole chips."""

    OWN = auto()
    LOOKS_ON = auto()
    BY_CONFIG = auto()
    BY_SHARES = auto()


@dataclass(frozen=True)
class Wish:
    """The devices that a claim wants, or has.

    Attributes:
        devices: Names.
        way: How it has its whole chips.
    """

    devices: frozenset[str]
    way: Way = Way.OWN

    @property
    def is_admin(self) -> bool:
        """Whether it wants admin access."""
        return self.way is Way.LOOKS_ON

    @property
    def is_shared(self) -> bool:
        """Whether it has a share of each device."""
        return self.way is Way.BY_SHARES

    @property
    def chips(self) -> set[int]:
        """The chips of its devices."""
        return {chip for device in self.devices for chip in CHIPS[device]}

    @property
    def has_marks(self) -> bool:
        """Whether markers are made for it, in the model that has these."""
        return not self.is_admin and min(self.chips) < MARKED

    @property
    def partitions(self) -> frozenset[str]:
        """Its devices that are partitions."""
        return self.devices & {*PARTITIONS}

    @property
    def shared_chips(self) -> set[int]:
        """The chips whose flag must be set; an A3 card has one for both dies."""
        is_shared = self.way in {Way.BY_CONFIG, Way.BY_SHARES}
        shared = self.devices - self.partitions if is_shared else ()
        return {chip for device in shared for chip in CHIPS[device]}

    def excludes(self, other: Wish) -> bool:
        """Whether both cannot be."""
        if self.is_admin or other.is_admin:
            return False
        are_shares = self.is_shared and other.is_shared
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
        share = share_of(uid) if self.is_shared else None
        is_admin = self.is_admin or None
        results = [
            *(result(one, "whole", share_id=share, admin_access=is_admin) for one in whole),
            *(result(device, "partition") for device in sorted(self.partitions)),
        ]
        by_config = self.way is Way.BY_CONFIG and whole
        configs = [config("FromClaim", SHARED_CONFIG, "whole")] if by_config else []
        return claim(uid.removeprefix("uid-"), *results, config=configs)


def share_of(uid: str) -> str:
    """The share that a claim has of each device that it shares."""
    return f"share-{uid}"


some_wishes = st.builds(
    Wish,
    st.frozensets(
        st.sampled_from(["npu-0", "npu-1", MODULE, *PARTITIONS]), min_size=1, max_size=3
    ).filter(
        lambda names: all(
            one == two or not CHIPS[one] & CHIPS[two] or {one, two} <= {*PARTITIONS}
            for one in names
            for two in names
        )
    ),
    st.sampled_from([Way.OWN, Way.OWN, Way.BY_CONFIG, Way.BY_SHARES]),
)
