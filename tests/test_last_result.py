"""Functions that keep their last result."""

from trio_npu_dra.kit.base.last_result import keeps_last_result


def test_only_a_call_with_other_arguments_than_the_last_one_calls_the_function() -> None:
    """Equal ones count as the same, positional ones and those by name."""
    calls: list[tuple[tuple[int, ...], int]] = []

    @keeps_last_result
    def total(numbers: tuple[int, ...], more: int = 0) -> int:
        calls.append((numbers, more))
        return sum(numbers) + more

    assert [total((1, 2)), total((1, 2)), total((1, 2), more=3), total((1, 2))] == [3, 3, 6, 3]
    assert calls == [((1, 2), 0), ((1, 2), 3), ((1, 2), 0)]


def test_an_error_is_not_kept() -> None:
    """The next call tries again, and the result before it is still known."""
    is_broken = True

    @keeps_last_result
    def halve(number: int) -> int:
        if is_broken and number == 4:
            raise ValueError(number)
        return number // 2

    assert halve(2) == 1
    try:
        halve(4)
    except ValueError:
        is_broken = False
    assert [halve(4), halve(2)] == [2, 1]
