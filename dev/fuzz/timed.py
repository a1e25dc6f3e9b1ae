"""Runs the tests of one target for some minutes, in a process of its own.

`python -m dev.fuzz.timed TARGET MINUTES RESULT`; `dev.fuzz` starts it. Each property runs until
its share of the time is over or it is broken, in rounds of some hundred examples. Failed examples
stay in a database: the next run begins with them.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.errors import UnsatisfiedAssumption

_ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = _ROOT / "tests" / "fuzz"
DATABASE: Final = _ROOT / "build" / "fuzz"
MEMORY_BYTES: Final = 4 << 30
EXAMPLE_SECONDS: Final = 20
_ROUND: Final = 300
_TOLD: Final = 300  # characters of an error


class Timed:
    """A plugin of pytest that runs properties by the clock.

    Args:
        seconds: For all properties of the target together.
    """

    def __init__(self, seconds: float) -> None:
        self.runs = 0
        self.findings: list[str] = []
        self._seconds = seconds
        self._share = seconds

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Called by pytest when the tests are known."""
        self._share = self._seconds / max(1, sum(map(_is_property, session.items)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Called by pytest to run one test."""
        if not _is_property(pyfuncitem):
            return None
        fixtures = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        broken = self.watch(pyfuncitem.obj.hypothesis, fixtures.keys())
        end = time.monotonic() + self._share
        try:
            while time.monotonic() < end:
                pyfuncitem.obj(**fixtures)
        except BaseException:
            self.findings += broken.values()
            raise
        return True

    def watch(self, handle: Any, fixtures: Any) -> dict[object, str]:
        """Count the property's runs; print the last example of each way to break it."""
        inner: Callable[..., object] = handle.inner_test
        broken: dict[object, str] = {}

        def watched(*args: Any, **values: Any) -> None:
            self.runs += 1
            try:
                with _limited():
                    inner(*args, **values)
            except UnsatisfiedAssumption:
                raise  # the property does not apply to this example
            except Exception as error:
                example = {key: value for key, value in values.items() if key not in fixtures}
                words = ", ".join(f"{key}={value!r}" for key, value in example.items())
                cause: BaseException = error
                while isinstance(cause, BaseExceptionGroup):  # of a nursery
                    cause = cause.exceptions[0]
                told = f"{inner.__name__}: {cause!r}"[:_TOLD]
                broken[_origin(cause)] = f"{told}\n@example({words})"
                raise

        handle.inner_test = watched
        return broken


@contextmanager
def _limited() -> Iterator[None]:
    """End an example that takes too long."""

    def end(*_: object) -> NoReturn:
        raise AssertionError(f"an example takes more than {EXAMPLE_SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, EXAMPLE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _origin(error: BaseException) -> object:
    """The origin of an error; hypothesis also tells errors apart by it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace and (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def _is_property(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "obj", None), "hypothesis")


def main(target: str, minutes: str, result: str) -> int:
    """Run one target and write the result."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    settings.register_profile(
        "fuzz",
        max_examples=_ROUND,
        deadline=None,
        database=DirectoryBasedExampleDatabase(DATABASE / target),
        suppress_health_check=list(HealthCheck),
    )
    timed = Timed(float(minutes) * 60)
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "--hypothesis-profile=fuzz"]
    options += ["-o", f"faulthandler_timeout={60 * float(minutes) + 900}"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported above
    status = pytest.main([str(FOLDER / f"test_{target}.py"), *options], plugins=[timed])
    Path(result).write_text(json.dumps({"runs": timed.runs, "findings": timed.findings}))
    return int(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
