"""Runs the tests of a room on mutants, in processes forked from one that has collected them.

It is a pytest plugin. Instead of running the tests it forks: once to find out which lines each test
runs and how long it takes, then once for each mutant, to run the tests that run the changed line,
quickest first, until one fails.

A fork applies the mutant by exchanging the code of the changed function, wherever that function is
by then. So nothing is imported anew, and a mutant costs what its tests cost.
"""

from __future__ import annotations

import ast
import gc
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

import coverage
import pytest
from hypothesis import settings

from dev.mutants.forks import Ended, Say, Task, run_all
from dev.mutants.measured import Measured, read_coverage
from dev.mutants.operators import Mutant, constant_name

AT_ONCE: Final = 2
FACTOR: Final = 4.0
"""How many times longer than measured a test may take with a mutant, plus this many seconds:"""
MORE_SECONDS: Final = 5.0
EXAMPLES: Final = 20
"""Examples of a property that does not set a number itself."""

Put = Callable[[], None]
"""Applies a mutant in this process."""


class Failed(Exception):
    """A test failed."""


class Subject:
    """A mutant, the function that applies it, and the tests that may notice it."""

    def __init__(self, mutant: Mutant, put: Put, tests: Sequence[str]) -> None:
        self.key = mutant.key
        self.line = mutant.line
        self.put = put
        self.tests = tests


class Room:
    """The collected tests of a room, and the process from which all others are forked."""

    def __init__(self, session: pytest.Session, sources: Path) -> None:
        settings.register_profile(
            "mutants", settings(), max_examples=EXAMPLES, derandomize=True, database=None
        )
        settings.load_profile("mutants")
        self._items = {item.nodeid: item for item in session.items}
        self._functions = _functions_below(sources)
        gc.collect()
        gc.freeze()  # otherwise each fork copies what the collector touches
        self.measured = self._measure(sources)

    def subject(self, file: Path, mutant: Mutant) -> Subject:
        """The mutant, ready to be tested; call this before the next one is made."""
        name = mutant.function
        functions = self._functions.get((file, name), [])
        if functions:
            put = partial(_exchange, functions, _codes(mutant, file))
            return Subject(mutant, put, self.measured.choose(file, mutant.lines))
        value = _constant(mutant.source, name)
        used = [number for number, text in enumerate(_lines_of(file), 1) if name in text]
        tests = self.measured.choose(file, used) or self.measured.choose_any()
        return Subject(mutant, partial(_set_everywhere, name, file, value), tests)

    def ask(self, subjects: Iterator[Subject]) -> Iterator[Ended[Subject]]:
        """Run the tests of each, two at a time."""
        tasks = (
            Task(
                subject=subject,
                run=partial(self._judge, subject),
                seconds=sum(
                    MORE_SECONDS + FACTOR * self.measured.seconds[test] for test in subject.tests
                )
                + MORE_SECONDS,
            )
            for subject in subjects
        )
        return run_all(tasks, at_once=AT_ONCE)

    def _judge(self, subject: Subject, say: Say) -> None:
        subject.put()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process
        self._run(subject.tests, say, self._set_alarm)

    def _set_alarm(self, test: str) -> None:
        signal.setitimer(signal.ITIMER_REAL, MORE_SECONDS + FACTOR * self.measured.seconds[test])

    def _run(
        self, tests: Sequence[str], say: Say, before_each: Callable[[str], None] | None = None
    ) -> None:
        """Run tests until one fails.

        Raises:
            Failed: One failed.
        """
        items = [self._items[test] for test in tests]
        if not items:
            return  # no test runs the changed code, so none can fail
        watch = _Watch(say)
        items[0].session.config.pluginmanager.register(watch)
        for item, following in zip(items, [*items[1:], None], strict=True):
            if before_each is not None:
                before_each(item.nodeid)
            say(item.nodeid)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if watch.has_failed:
                raise Failed(item.nodeid)

    def _measure(self, sources: Path) -> Measured:
        with tempfile.TemporaryDirectory() as folder:
            data_file, times = Path(folder) / "coverage", Path(folder) / "seconds"
            task = Task(
                subject=None,
                run=partial(self._trace, sources, data_file, times),
                seconds=1800.0,
            )
            (ended,) = run_all([task], at_once=1)
            if not ended.is_well:
                raise SystemExit(f"without a mutant this test fails: {ended.said[-1:]}")
            lines = times.read_text().splitlines()
            seconds = {name: float(text) for text, name in (line.split(" ", 1) for line in lines)}
            return Measured(seconds=seconds, by_line=read_coverage(data_file, seconds))

    def _trace(self, sources: Path, data_file: Path, times: Path, say: Say) -> None:
        del say  # too much for a pipe
        traced = coverage.Coverage(
            data_file=str(data_file), source=[str(sources)], config_file=False, messages=False
        )
        began: dict[str, float] = {}

        def begin(test: str) -> None:
            began[test] = time.monotonic()
            traced.switch_context(test)

        traced.start()
        self._run(list(self._items), lambda _: None, begin)
        traced.stop()
        traced.save()
        starts = [*began.values(), time.monotonic()]
        spans = (after - before for before, after in pairwise(starts))
        times.write_text(
            "\n".join(f"{span} {test}" for test, span in zip(began, spans, strict=True))
        )


class _Watch:
    """Notes whether a test failed."""

    def __init__(self, say: Say) -> None:
        self.has_failed = False
        self._say = say

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for setup, call and teardown of each test."""
        self.has_failed |= report.failed


def _functions_below(sources: Path) -> dict[tuple[Path, str], list[FunctionType]]:
    """All functions of this process that are written below *sources*, by file and name."""
    found: dict[tuple[Path, str], list[FunctionType]] = {}
    for thing in gc.get_objects():
        if type(thing) is FunctionType:
            file = Path(thing.__code__.co_filename)
            if file.is_relative_to(sources):
                found.setdefault((file, thing.__code__.co_qualname), []).append(thing)
    return found


def _codes(mutant: Mutant, file: Path) -> dict[int, CodeType]:
    """The mutated function's code, by its first line, because a property's name occurs twice."""
    module = compile(mutant.source, str(file), "exec", dont_inherit=True)
    found: dict[int, CodeType] = {}
    pending = [module]
    while pending:
        code = pending.pop()
        if code.co_qualname == mutant.function:
            found[code.co_firstlineno] = code
        pending += [part for part in code.co_consts if isinstance(part, CodeType)]
    return found


def _exchange(functions: Sequence[FunctionType], codes: dict[int, CodeType]) -> None:
    for function in functions:
        function.__code__ = codes[function.__code__.co_firstlineno]


def _constant(module: ast.Module, name: str) -> int | float:
    for node in module.body:
        if constant_name(node) == name:
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert isinstance(node.value, ast.Constant)
            assert isinstance(node.value.value, int | float)
            return node.value.value
    raise AssertionError(name)


def _set_everywhere(name: str, file: Path, value: float) -> None:
    """Set it in its module, and in all modules that have imported it."""
    (home,) = (
        module for module in sys.modules.values() if getattr(module, "__file__", "") == str(file)
    )
    old = vars(home)[name]
    for module in list(sys.modules.values()):
        if vars(module).get(name) is old:
            setattr(module, name, value)


def _lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines()
