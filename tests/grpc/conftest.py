"""A socket path for the tests of gRPC, and a limit for each."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from dev.rig.waiting import HANG_SECONDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The socket of the server under test."""
    return tmp_path / "dra.sock"


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """End a test that hangs, also in a shield or without a checkpoint, which no scope ends."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"the test takes longer than {HANG_SECONDS:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
