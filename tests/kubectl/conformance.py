"""What `kubectl npu` needs of kubectl, of real ones and of the stand-in.

It is found in `PATH`. Its current context has no namespace, and the context `other` has `team`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from dev.rig.waiting import HANG_SECONDS, until
from trio_npu_dra.kit.api.objects import ResourceSlice
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.tools import kubectl
from trio_npu_dra.tools.cli import kubectl_npu

PROGRAM: Final = (sys.executable, "-m", kubectl_npu.__name__)


def asked(*words: str) -> argparse.Namespace:
    """What the command line says."""
    return kubectl_npu.parser().read(words)


@contextmanager
def standard_input(outer: int, inner: int) -> Iterator[int]:
    """Read our standard input from *inner*, whose other side is *outer*; close both at the end."""
    before = os.dup(0)
    os.dup2(inner, 0)
    yield outer
    os.dup2(before, 0)
    for end in (outer, inner, before):
        os.close(end)


async def slices_are_listed_and_watched() -> None:
    """Through the proxy, by one client."""
    with trio.fail_after(HANG_SECONDS):
        async with kubectl.open_cluster(asked()) as client:
            _, version = await client.list(ResourceSlice)
            async with client.watch(ResourceSlice, resource_version=version):
                pass


async def a_context_may_have_a_namespace() -> None:
    """Else it is `default`; that of the command line wins."""
    assert await kubectl.namespace_of(asked()) == "default"
    assert await kubectl.namespace_of(asked("--context", "other")) == "team"
    assert await kubectl.namespace_of(asked("--context=other", "-n=mine")) == "mine"


async def an_unknown_context_is_named() -> None:
    """With kubectl's message."""
    with pytest.raises(ExceptionGroup) as caught, trio.fail_after(HANG_SECONDS):
        async with kubectl.open_cluster(asked("--context=none")):
            pass
    (error,) = caught.value.exceptions
    assert isinstance(error, ConfigError)
    assert str(error) == 'kubectl proxy ended: context "none" does not exist'


def interrupt(command: trio.Process) -> None:
    """As Ctrl-C: its children get it, too."""
    os.killpg(command.pid, signal.SIGINT)


def hang_up(command: trio.Process) -> None:
    """As a terminal that closes."""
    os.killpg(command.pid, signal.SIGHUP)


ENDINGS: Final = (interrupt, hang_up, trio.Process.terminate, trio.Process.kill)


async def nothing_is_left(end: Callable[[trio.Process], None], folder: Path) -> None:
    """No process, no socket and no folder, however a command ends that watches."""
    with trio.fail_after(HANG_SECONDS):
        command = await trio.lowlevel.open_process(
            [*PROGRAM, "-w"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(folder)},
            start_new_session=True,
        )
        assert command.stdout is not None
        assert command.stderr is not None
        assert await command.stdout.receive_some()
        assert len(processes(folder)) >= 2
        assert modes(folder) == [0o700]
        end(command)
        async with command.stdout, command.stderr:
            assert b"".join([chunk async for chunk in command.stderr]) == b""
        await command.wait()
        await until(lambda: not processes(folder) and not any(folder.iterdir()))


def modes(folder: Path) -> list[int]:
    """The rights on what is in a folder."""
    return [path.stat().st_mode & 0o777 for path in folder.iterdir()]


def processes(folder: Path) -> list[Path]:
    """Those of a command whose temporary files are in *folder*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = path.read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if f"TMPDIR={folder}".encode() in content.split(b"\0"):
            found.append(path)
    return found


ALL: Final = (
    slices_are_listed_and_watched,
    a_context_may_have_a_namespace,
    an_unknown_context_is_named,
)
