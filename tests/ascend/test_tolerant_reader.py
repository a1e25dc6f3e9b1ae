"""Answers about a fact that may be missing."""

from __future__ import annotations

import pytest

from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.tolerant_reader import TolerantReader

NO = NotSupported(-8255, "dcmi_get_device_hbm_info")
FAILED = DcmiError(-8005, "dcmi_get_device_hbm_info")


@pytest.mark.parametrize(
    ("known", "answers", "value", "is_answered"),
    [
        (None, [NO], None, True),
        (64, [NO, NO], None, True),
        (64, [64], 64, True),
        (64, [NO, 64, 64], 64, True),
        (64, [32, 32], 32, True),
        (64, [32, 64, 64], 64, True),
        (64, [NO, 32, 32], 32, True),
        (64, [None, 32, 16], 64, True),
        (64, [32, FAILED], 64, False),
        (False, [True, False, False], False, True),
        (64, [NO, None], None, True),
        (None, [None], None, True),
        (64, [NO, FAILED], 64, False),
        (64, [FAILED], 64, False),
        (None, [FAILED], None, False),
    ],
)
def test_a_known_fact_changes_only_by_two_equal_answers_in_a_row(
    known: int | None,
    answers: list[int | DcmiError | None],
    value: int | None,
    *,
    is_answered: bool,
) -> None:
    """One odd answer costs none; an error leaves it to be asked for again."""
    facts = TolerantReader()
    left = iter(answers)

    def call() -> int | None:
        answer = next(left)
        if isinstance(answer, DcmiError):
            raise answer
        return answer

    assert facts.read("memory", known, call) == value
    assert bool(facts.problem) != is_answered
    assert not list(left)
