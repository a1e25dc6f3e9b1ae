"""Standard error that keeps nobody waiting: a thread writes late, and what nobody reads is dropped.

The reader of a container's log may stop, as containerd does while its disk stalls. A pipe holds
64 KiB, and then a write blocks: of the event loop it would stop everything, signals included.
"""

import atexit
import io
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

LIMIT: Final = 1 << 20
"""Bytes that wait for the reader; more are dropped: those of some 3,000 lines."""

EXIT_SECONDS: Final = 2.0
"""How long the end of the process waits for the reader."""

_PAUSE_SECONDS: Final = 1.0  # after an error, such as a disk that is full


def standard_error() -> "TextIO | ThreadedStream":
    """From now on, and until the process ends, nothing waits for the reader of standard error.

    What goes to `sys.stderr` waits for the thread. Where standard output or error is a pipe or a
    file, what C code writes there directly is dropped if it cannot be written at once.
    """
    if sys.stderr is None:  # closed: some other file gets its descriptor
        return Path(os.devnull).open("w", encoding="utf-8")
    if sys.stderr is sys.__stderr__:  # else somebody collects it, such as a test
        for descriptor in (1, 2):
            with suppress(OSError):  # a socket, or closed
                _make_nonblocking(descriptor)
        sys.stderr = stream = ThreadedStream(2)
        atexit.register(stream.drain)
    return sys.stderr


def _make_nonblocking(descriptor: int) -> None:
    """Open the same file anew, as others have the open one too, perhaps a shell its terminal."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
    opened = os.open(f"/proc/self/fd/{descriptor}", flags)
    os.dup2(opened, descriptor)
    os.close(opened)


class ThreadedStream(io.TextIOBase):
    """A text stream to a descriptor; a write to it never waits: a thread writes what is not taken.

    A line that is taken wakes no thread: that would compete with the call that logs it for the
    interpreter, and make an unprepare 7 % longer and a repeated prepare 4 %.

    Args:
        descriptor: Where to; it stays open.

    Attributes:
        words: Makes the line that says how many lines were dropped.
    """

    def __init__(self, descriptor: int) -> None:
        self.words: Callable[[int], str] = "{} log lines were dropped: nobody read them\n".format
        self._descriptor = descriptor
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)  # its disk may stall all the same
        self._is_blocking = is_file or os.get_blocking(descriptor)
        self._waiting: deque[bytes] = deque()
        self._size = 0  # of what waits and what is being written
        self._dropped = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, text: str) -> int:
        """Write *text*, now or soon, or drop it if too much waits."""
        data = text.encode(errors="backslashreplace")
        with self._changed:
            if not (self._is_blocking or self._size or self._dropped):
                with suppress(OSError):  # nobody reads, or the thread finds out
                    data = data[os.write(self._descriptor, data) :]
            if self._size + len(data) > LIMIT:
                self._dropped += data.count(b"\n")
            elif data:
                self._waiting.append(data)
                self._size += len(data)
                self._changed.notify_all()
        return len(text)

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether a person reads it."""
        return os.isatty(self._descriptor)

    def drain(self, seconds: float = EXIT_SECONDS) -> None:
        """Wait until all is written, for *seconds* at most; it blocks the caller."""
        with self._changed:
            self._changed.wait_for(lambda: not self._size, seconds)

    def _run(self) -> None:
        written = 0
        while True:
            with self._changed:
                self._size -= written
                self._changed.notify_all()
                if self._dropped:  # behind what came before them, before what comes after
                    words, self._dropped = self.words(self._dropped).encode(), 0
                    self._waiting.append(words)
                    self._size += len(words)
                self._changed.wait_for(lambda: self._waiting)
                data = b"".join(self._waiting)
                self._waiting.clear()
            try:
                self._write_all(data)
            except OSError:
                time.sleep(_PAUSE_SECONDS)
                with self._changed:
                    self._dropped += data.count(b"\n")
            written = len(data)

    def _write_all(self, data: bytes) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                poll.poll()
