"""What the claims of a node should be, and whether what a call did is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.claims.node import NodeOnDisk
from tests.reliability.holds import guarded_on, recorded_on, set_aside_on
from tests.reliability.wishes import CHIPS, Wish
from trio_npu_dra.ascend.offers import offers
from trio_npu_dra.kit.kubelet.driver import PrepareResult

UNKNOWN = "does not exist on node"
"""In the message for a claim whose device is not there."""


class Expected:
    """A plain model of a node.

    Attributes:
        node: The node.
        allocated: What the API server says each claim is to have.
        held: What each prepared claim has.
        lost: Prepared claims whose CDI file somebody took away, and nobody has looked since.
        wrong: The same for files that somebody spoilt: only a start and a prepare notice.
        stray: Claims whose record broke: nobody knows any more which steps were done for them.
    """

    def expect(self, node: NodeOnDisk) -> None:
        """Begin with a node that has no claims."""
        self.node = node
        self.allocated: dict[str, Wish] = {}
        self.held: dict[str, Wish] = {}
        self.lost: set[str] = set()
        self.wrong: set[str] = set()
        self.stray: set[str] = set()

    def judge(
        self, answers: Mapping[str, PrepareResult], *, until_then: Mapping[str, Wish]
    ) -> None:
        """Take over what was answered, if the model agrees that it could be.

        Within one call a device may move from one claim to another; between two at once, and from
        a claim whose record cannot be read, it depends on who is first. So what those held
        *until_then* is a reason as well, and what takes steps to be let go.
        """
        before = dict(self.held)
        slow = {uid: hold for uid, hold in before.items() if hold.has_marks or hold.is_shared}
        unknown = {
            uid
            for uid, answer in answers.items()
            if self._is_unknown(uid, before) or UNKNOWN in answer.error
        }
        for uid, answer in answers.items():
            if before.get(uid) != self.allocated[uid] and uid not in unknown:
                self.held.pop(uid, None)  # of an allocation that is gone
            if not answer.error:
                self.held[uid] = self.allocated[uid]
                self.mended([uid])
        for uid, answer in answers.items():
            if before.get(uid) == self.allocated[uid]:
                assert not answer.error
                continue
            if uid in unknown:
                assert UNKNOWN in answer.error
                assert self._may_be_unknown(uid, {**before, **until_then})
                continue
            if answer.error:
                reasons = (self.held, until_then, slow)
                assert any(self._is_excluded(uid, others) for others in reasons), answer
            else:
                assert not self._is_excluded(uid, self.guards())
        self._settle()

    def adopt(self, uids: Iterable[str], is_prepare: bool) -> None:
        """Take over what a call left that was not answered, if it may have left that."""
        recorded, known = recorded_on(self.node), dict(self.held)
        for uid in uids:
            before, now, new = self.held.get(uid), recorded.get(uid), self.allocated[uid]
            if not is_prepare:
                assert now in {before, None}
            elif before == new or self._is_unknown(uid, known):
                assert now == before
            else:
                assert now in {before, new, None}
            if now is None:
                self.held.pop(uid, None)
            else:
                self.held[uid] = now
        for uid in self.held.keys() - known.keys():
            assert not self._is_excluded(uid, self.guards())
        self._settle()

    def _is_excluded(self, uid: str, others: Mapping[str, Wish]) -> bool:
        """Whether one of the others has what the claim is to have."""
        return any(
            self.allocated[uid].excludes(hold) for other, hold in others.items() if other != uid
        )

    def _is_unknown(self, uid: str, before: Mapping[str, Wish]) -> bool:
        """Whether a claim wants what is neither offered nor held now, and does not have it."""
        there = self._offered() | _devices(before)
        hold = self.allocated[uid]
        return before.get(uid) != hold and not hold.devices <= there

    def _may_be_unknown(self, uid: str, before: Mapping[str, Wish]) -> bool:
        """Whether it wants what is not offered, or what shares a chip with what is held."""
        offered, held = self._offered(), _devices(before)
        return any(
            device not in offered
            or any(CHIPS[device] & CHIPS[other] for other in held if other != device)
            for device in self.allocated[uid].devices
        )

    def _offered(self) -> set[str]:
        return {offer.name for offer in offers(self.node.board.value)}

    def _settle(self) -> None:
        self.lost = {uid for uid in self.lost & self.held.keys() if uid not in self.node.cdi_uids()}
        self.wrong &= self.held.keys() - self.lost

    def mended(self, uids: Iterable[str]) -> None:
        """Note that the files of claims are right again."""
        self.lost -= set(uids)
        self.wrong -= set(uids)

    def forget(self, uids: Iterable[str]) -> None:
        """Note that claims have nothing any more."""
        for uid in uids:
            self.held.pop(uid, None)
        self.mended(uids)

    @property
    def unreadable(self) -> set[str]:
        """Claims whose record is set aside."""
        return set_aside_on(self.node)

    def guards(self) -> dict[str, Wish]:
        """What the files of those still hand out."""
        return guarded_on(self.node, self.unreadable)


def _devices(holds: Mapping[str, Wish]) -> set[str]:
    """What claims have for themselves, by name."""
    return {device for hold in holds.values() if not hold.is_admin for device in hold.devices}
