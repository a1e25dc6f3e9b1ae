"""The faults that are put into code, and the texts that are left alone."""

from __future__ import annotations

import ast

import pytest

from dev.mutants.operators import mutants


def faults(*lines: str) -> set[str]:
    """The mutants of a function with these lines, each on one line."""
    text = "\n    ".join(["async def function(self, a, b, log):", *lines])
    return {mutant.after for mutant in mutants(text)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("os.fsync(a)", {"pass"}),
        ("self.a = b", {"pass"}),
        ("a = b", set()),
        ("return a", {"return None"}),
        ("return None", set()),
        ("raise ValueError(f'{a + 1}')", {"pass"}),
        ("a = b < 1", {"a = b <= 1", "a = b < 2"}),
        ("a = a and b", {"a = a", "a = b"}),
        ("a = not b", {"a = b"}),
        ("a = a + b", {"a = a - b"}),
        ("a = 2.0", {"a = 4.0"}),
        ("a = True", {"a = False"}),
        ("a = min(a, b)", {"a = max(a, b)"}),
        ("a = b(a, uid=b)", {"a = b(a)"}),
        ("a = a if b else 'c'", {"a = a if True else 'c'", "a = a if False else 'c'"}),
        ("a = [a for a in b if a]", {"a = [a for a in b]"}),
    ],
)
def test_a_statement_has_its_faults(line: str, expected: set[str]) -> None:
    """Faults come one at a time; without an assignment a function would fail at once."""
    assert faults(line) == expected


def test_a_block_is_entered_always_or_never_or_without_its_context() -> None:
    """The blocks are conditions, loops, locks, and error handlers."""
    assert faults("for a in b:", "    yield a") == {"for a in ():"}
    assert faults("if a:", "    yield b") == {"if True:", "if False:"}
    assert faults("async with a, b:", "    yield a") == {"async with b:", "async with a:"}
    assert faults("async with a as b:", "    yield b") == set()
    assert faults("try:", "    yield a", "except b:", "    yield b") == {"raise"}
    assert faults("try:", "    yield a", "finally:", "    a()") == {"pass"}


def test_texts_are_left_alone() -> None:
    """A different log line would prove nothing."""
    assert faults('"""Text 1."""', "log.info('a', extra={'b': 1})", "assert a") == set()


def test_constants_are_changed_too() -> None:
    """The constants are named numbers of the module."""
    assert {mutant.after for mutant in mutants("A: Final = 5.0\nB = 2\nC = 'c'\n")} == {
        "A: Final = 10.0",
        "B = 3",
    }


def test_each_mutant_has_a_name_of_its_own_and_leaves_the_next_one_whole() -> None:
    """So an interrupted run can continue where it stopped."""
    text = "def one(a):\n    a()\n    a()\n\n\nclass B:\n    def two(self):\n        self.a()\n"
    found = [(mutant.key, ast.unparse(mutant.source)) for mutant in mutants(text)]
    assert len({key for key, _ in found}) == len({source for _, source in found}) == 3
    assert all(source.count("pass") == 1 for _, source in found)
