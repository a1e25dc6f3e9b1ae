"""A driver that takes claims one by one."""

from __future__ import annotations

from trio_npu_dra.kit.base.errors import StorageError, UnknownDevice
from trio_npu_dra.kit.kubelet.driver import ClaimByClaim, ClaimRef, PreparedDevice, PrepareResult

GOOD, BAD = ClaimRef("default", "uid-a", "a"), ClaimRef("default", "uid-b", "b")
DEVICES = (PreparedDevice(requests=(), pool="p", device="d", cdi_device_ids=("v/c=d",)),)


class Picky(ClaimByClaim):
    """Knows one claim."""

    async def prepare_claim(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        """Prepare the good one."""
        if ref == BAD:
            raise UnknownDevice("no such device")
        return DEVICES

    async def unprepare_claim(self, ref: ClaimRef) -> None:
        """Unprepare the good one."""
        if ref == BAD:
            raise StorageError("the disk is full")


async def test_what_is_raised_for_a_claim_is_the_answer_for_that_one() -> None:
    """The others of the call have theirs, whatever the order."""
    for claims in ([GOOD, BAD], [BAD, GOOD]):
        assert await Picky().prepare(claims) == {
            "uid-a": PrepareResult(devices=DEVICES),
            "uid-b": PrepareResult(error="no such device"),
        }
        assert await Picky().unprepare(claims) == {"uid-a": "", "uid-b": "the disk is full"}
