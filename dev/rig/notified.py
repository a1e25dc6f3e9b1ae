"""The kernel asks before it makes some system calls of a process, and waits for the answer.

seccomp(2) calls it user notification: a process loads a filter for itself and gets a descriptor,
from which another process reads each call that the filter names. It needs neither root nor a
tracer, arguments are at the same place on every machine, and all other calls are as fast as ever.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import trio

from dev.cluster.processes import run

# Of linux/seccomp.h, linux/filter.h and linux/prctl.h: the same on all machines.
_SET_MODE_FILTER: Final = 1
_FILTER_FLAG_NEW_LISTENER: Final = 1 << 3
_RETURN_ALLOW: Final = 0x7FFF_0000
_RETURN_NOTIFY: Final = 0x7FC0_0000
_ANSWER_CONTINUE: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38
_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

_INSTRUCTION: Final = struct.Struct("=HBBI")
_CALL: Final = struct.Struct("=QIIiIQ6Q")
_ANSWER: Final = struct.Struct("=QqiI")
_RECEIVE: Final = 0xC000_2100 | _CALL.size << 16
_SEND: Final = 0xC000_2101 | _ANSWER.size << 16
_NUMBER_AT: Final = 0
_FLAGS_OF_OPENAT_AT: Final = 32

_FOR_CHANGES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that waits for an answer.

    Attributes:
        name: As in syscalls(2).
        arguments: As the kernel gets them: numbers, and addresses in the caller's memory.
        thread: The thread that makes it.
        ticket: What the kernel knows it by.
    """

    name: str
    arguments: tuple[int, ...]
    thread: int
    ticket: int

    def number(self, index: int) -> int:
        """An argument that is an int in C."""
        return ctypes.c_int(self.arguments[index]).value

    def memory(self, address: int, size: int) -> bytes:
        """Up to *size* bytes of the caller."""
        with Path(f"/proc/{self.thread}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size)

    def link(self, name: str) -> str:
        """What a symbolic link in the caller's folder in /proc says."""
        return os.readlink(f"/proc/{self.thread}/{name}")  # noqa: PTH115 - it is for each call


class Calls:
    """The calls of a process that loads a filter for them.

    Args:
        names: As in syscalls(2); calls of openat only if they may change a file. Names that this
            machine does not have are ignored.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        numbers = system_calls(names)
        self._names = {number: name for name, number in numbers.items()}
        self._receiver, self._sender = socket.socketpair()
        self._listener = -1
        (seccomp,) = system_calls(("seccomp",)).values()
        self.filter = Filter(_program(numbers), seccomp, self._sender)

    async def listen(self) -> int:
        """Wait until the process, which has been started, has loaded the filter.

        Returns:
            The descriptor that is readable when a call waits.
        """
        self._sender.close()  # the process has its own
        await trio.lowlevel.wait_readable(self._receiver)
        _, listeners, _, _ = socket.recv_fds(self._receiver, 1, 1)
        assert listeners, "the process has not loaded the filter"
        (self._listener,) = listeners
        return self._listener

    def receive(self) -> Call | None:
        """The call that waits.

        Returns:
            `None`: Its thread is dead, or was interrupted and makes the call again.
        """
        buffer = bytearray(_CALL.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        ticket, thread, _, number, _, _, *arguments = _CALL.unpack(buffer)
        return Call(self._names[number], tuple(arguments), thread, ticket)

    def allow(self, call: Call) -> None:
        """Have the kernel make it."""
        try:
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(call.ticket, 0, 0, _ANSWER_CONTINUE))
        except OSError as error:
            if error.errno != errno.ENOENT:  # as in `receive`
                raise

    def close(self) -> None:
        """Close; a process that still makes such a call gets ENOSYS."""
        self._receiver.close()
        self._sender.close()
        if self._listener >= 0:
            os.close(self._listener)


@dataclass(frozen=True, slots=True)
class Filter:
    """Loaded by the process under test.

    Attributes:
        program: For the kernel.
        seccomp: The number of the system call that loads it.
        sender: Takes the listener.
    """

    program: bytes
    seccomp: int
    sender: socket.socket

    def load(self) -> None:
        """From now on this thread, and all that it starts, are asked."""
        listeners: list[int] = []
        is_loaded = threading.Event()

        def send() -> None:
            is_loaded.wait()
            socket.send_fds(self.sender, [b"\0"], listeners)

        # A thread that is there already is not asked, so that sending does not wait for itself.
        thread = threading.Thread(target=send)
        thread.start()
        try:
            listeners.append(self._load())
        finally:
            is_loaded.set()
            thread.join()
            self.sender.close()
        os.close(listeners[0])

    def _load(self) -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
        listener: int = libc.syscall(
            ctypes.c_long(self.seccomp),
            ctypes.c_ulong(_SET_MODE_FILTER),
            ctypes.c_ulong(_FILTER_FLAG_NEW_LISTENER),
            ctypes.byref(_Program(len(self.program) // _INSTRUCTION.size, self.program)),
        )
        if listener < 0:
            raise OSError(ctypes.get_errno(), "the kernel takes no filter for system calls")
        return listener


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


@cache
def system_calls(names: tuple[str, ...]) -> dict[str, int]:
    """The numbers of system calls on this machine, as the C compiler knows them."""
    source = "".join(f'"{name}" SYS_{name}\n' for name in names)
    text = run("cc", "-E", "-P", "-xc", "-", stdin=f"#include <sys/syscall.h>\n{source}")
    found = (line.split() for line in text.splitlines() if line.startswith('"'))
    return {name.strip('"'): int(number) for name, number in found if number.isdecimal()}


def _program(numbers: Mapping[str, int]) -> bytes:
    """In the language of classic BPF: jumps say how many instructions they skip."""
    others = [number for name, number in numbers.items() if name != "openat"]
    notify = len(others) + 5
    lines = [(_LOAD, 0, 0, _NUMBER_AT)]
    lines += [(_JUMP_IF_EQUAL, notify - at, 0, number) for at, number in enumerate(others, 2)]
    lines += [
        (_JUMP_IF_EQUAL, 0, 2, numbers["openat"]),
        (_LOAD, 0, 0, _FLAGS_OF_OPENAT_AT),
        (_JUMP_IF_ANY_BIT, 1, 0, _FOR_CHANGES),
        (_RETURN, 0, 0, _RETURN_ALLOW),
        (_RETURN, 0, 0, _RETURN_NOTIFY),
    ]
    assert lines[notify] == (_RETURN, 0, 0, _RETURN_NOTIFY)
    return b"".join(_INSTRUCTION.pack(*line) for line in lines)
