"""The capacities of shared devices never run out before their shares do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.devices.test_build import FULL
from tests.holds.entries import hold
from tests.pool.publishing import DRIVER
from trio_npu_dra.agent.devices.build import build_pool
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.agent.holds.hold import Hold
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.kit.api.objects import Device
from trio_npu_dra.kit.api.quantity import parse_quantity

BOARD = Board(chips=(FULL,))
"""One 910B4 with 32 GiB and 20 AI cores."""


def build(
    *holds: Hold, shares: int = 8, keeps: bool = True, board: Board = BOARD
) -> tuple[Device, ...]:
    """The devices of a node where NPUs are to be shared."""
    features = ServerFeatures(shares=keeps)
    policy = TaintPolicy(domain=DRIVER)
    return build_pool(available(board, holds), board, policy, features, shares=shares).devices


def test_a_device_has_shares_and_an_equal_part_of_the_rest_for_each() -> None:
    """The capacities on the wire, with their request policies."""
    (device,) = build()
    wire = device.to_wire()
    assert wire["allowMultipleAllocations"] is True
    assert wire["capacity"] == {
        "aiCores": {
            "value": "20",
            "requestPolicy": {"default": "2", "validRange": {"min": "0", "step": "1"}},
        },
        "memCapacity": {
            "value": "32Gi",
            "requestPolicy": {"default": "4Gi", "validRange": {"min": "0", "step": "1Mi"}},
        },
        "shares": {
            "value": "8",
            "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}},
        },
    }


@given(shares=st.integers(2, 63), mebibytes=st.integers(1, 1 << 20), cores=st.integers(1, 100))
def test_as_many_plain_requests_fit_as_there_are_shares(
    shares: int, mebibytes: int, cores: int
) -> None:
    """The API server accepts each of their capacities."""
    chip = replace(FULL, memory_bytes=mebibytes << 20, ai_cores=cores)
    (device,) = build(shares=shares, board=Board(chips=(chip,)))
    for part in device.capacity.values():
        policy = part.request_policy
        assert policy is not None
        assert policy.valid_range is not None
        total, default = parse_quantity(part.value), parse_quantity(policy.default)
        least, step = (
            parse_quantity(policy.valid_range.min),
            parse_quantity(policy.valid_range.step or "1"),
        )
        assert default * shares <= total
        assert (default - least) % step == 0
        assert least + step <= total


@pytest.mark.parametrize(("shares", "keeps"), [(0, True), (8, False)])
def test_a_device_is_whole_where_shares_are_not_wanted_or_not_kept(
    shares: int, keeps: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that does not keep them is worth a log line."""
    (device,) = build(shares=shares, keeps=keeps)
    assert device.allow_multiple_allocations is None
    assert device.capacity.keys() == {"aiCores", "memCapacity"}
    assert all(part.request_policy is None for part in device.capacity.values())
    assert not caplog.messages or "are published as a whole" in caplog.text


def test_a_held_device_keeps_its_form_until_it_is_released() -> None:
    """Schedulers do not compare allocations of one kind with those of the other."""
    whole, share = hold("a", 3), hold("a", 3, share="1")
    assert build(whole)[0].allow_multiple_allocations is None
    assert build(share)[0].allow_multiple_allocations is True
    assert build(whole, shares=0)[0].allow_multiple_allocations is None
    assert build(share, shares=0) == ()
    assert build(share, keeps=False) == ()


def test_a_share_flag_set_for_claims_is_not_published() -> None:
    """Else each claim would cost a write; a share flag that people have set is published."""
    board = Board(chips=(replace(FULL, device_share=True),))
    policy = TaintPolicy(domain=DRIVER)

    def published(*keys: str) -> bool | None:
        (device,) = build_pool(
            available(board, ()), board, policy, ServerFeatures(), shared_for_claims=keys
        ).devices
        return device.attributes["deviceShare"].bool_

    assert published() is True
    assert published(FULL.key) is False
