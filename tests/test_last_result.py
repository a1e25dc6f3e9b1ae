"""Functions that keep their last result."""

import pytest

from trio_npu_dra.kit.base.last_result import keeps_last_result


def test_only_other_arguments_call_the_function() -> None:
    """Equal arguments count as one call, by position or name; an error is not kept."""
    calls: list[tuple[tuple[int, ...], int]] = []

    @keeps_last_result
    def total(numbers: tuple[int, ...], more: int = 0) -> int:
        calls.append((numbers, more))
        if more < 0:
            raise ValueError(more)
        return sum(numbers) + more

    assert [total((1, 2)), total((1, 2)), total((1, 2), more=3), total((1, 2))] == [3, 3, 6, 3]
    assert calls == [((1, 2), 0), ((1, 2), 3), ((1, 2), 0)]
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            total((1, 2), more=-1)
    assert total((1, 2)) == 3
    assert calls[3:] == [((1, 2), -1), ((1, 2), -1)]
