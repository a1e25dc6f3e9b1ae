"""Processes that each do one task and report the result, a few at a time."""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, NoReturn, TypeVar

MEMORY: Final = 3 * 2**30
"""Bytes that a process may use, because a mutant may fill a list in a loop."""

T = TypeVar("T")

Say = Callable[[str], None]
"""Sends the parent a line; all lines of a process fit into a pipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[T]):
    """The task of one process.

    Attributes:
        subject: Identifies the task for the caller.
        run: Does the task; a return means success.
        seconds: How long it may take.
    """

    subject: T
    run: Callable[[Say], object]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Generic[T]):
    """How a task ended.

    Attributes:
        subject: Identifies the task.
        is_well: Whether it returned.
        timed_out: Whether it took too long and was killed, or its own alarm ended it.
        said: Its lines.
        seconds: How long it took.
    """

    subject: T
    is_well: bool
    timed_out: bool
    said: list[str]
    seconds: float


@dataclass(slots=True)
class _Process(Generic[T]):
    task: Task[T]
    pid: int
    pipe: int
    since: float

    @property
    def deadline(self) -> float:
        return self.since + self.task.seconds


def run_all(tasks: Iterable[Task[T]], *, at_once: int) -> Iterator[Ended[T]]:
    """Run each task in a fork of this process; processes that a task started end with it."""
    waiting = iter(tasks)
    running: dict[int, _Process[T]] = {}  # by pidfd
    is_over = False
    try:
        while True:
            while not is_over and len(running) < at_once:
                task = next(waiting, None)
                if task is None:
                    is_over = True
                    break
                process = _start(task)
                running[os.pidfd_open(process.pid)] = process
            if not running:
                return
            poll = select.poll()
            for descriptor in running:
                poll.register(descriptor, select.POLLIN)
            left = min(process.deadline for process in running.values()) - time.monotonic()
            ended = [descriptor for descriptor, _ in poll.poll(max(0.0, left) * 1000)]
            late = [
                descriptor
                for descriptor, process in running.items()
                if process.deadline <= time.monotonic() and descriptor not in ended
            ]
            for descriptor in (*ended, *late):
                yield _end(running.pop(descriptor), descriptor, timed_out=descriptor in late)
    finally:
        for descriptor, process in running.items():
            _end(process, descriptor, timed_out=True)


def _start(task: Task[T]) -> _Process[T]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _do(task, writer)
    os.close(writer)
    return _Process(task, pid, reader, time.monotonic())


def _do(task: Task[T], pipe: int) -> NoReturn:
    """Run in the child process."""
    status = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        task.run(lambda line: void(os.write(pipe, f"{line}\n".encode())))
        status = 0
    finally:
        os._exit(status)


def void(_: object) -> None:
    """Nothing of it."""


def _end(process: _Process[T], descriptor: int, *, timed_out: bool) -> Ended[T]:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _, status = os.waitpid(process.pid, 0)
    seconds = time.monotonic() - process.since
    os.close(descriptor)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    os.set_blocking(process.pipe, False)
    with open(process.pipe, "rb") as pipe:  # noqa: PTH123 - a descriptor
        said = (pipe.read() or b"").decode().splitlines()
    is_alarmed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    return Ended(
        subject=process.task.subject,
        is_well=status == 0 and not timed_out,
        timed_out=timed_out or is_alarmed,
        said=said,
        seconds=seconds,
    )
