"""Programs of the cluster: each has its own log and is ended by its process id."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 180.0
"""Seconds that tests wait, because a busy machine may be slow."""


class ClusterError(RuntimeError):
    """A program of the cluster failed; the message names it and ends with its output."""


def run(
    *argv: str | Path,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 900,
) -> str:
    """Run a program to its end.

    Args:
        argv: the program and its arguments.
        stdin: its input; nothing without it.
        env: variables set beside those of this process.
        cwd: its working folder.
        timeout: seconds it may take.

    Returns:
        Its stdout.

    Raises:
        ClusterError: it is not installed, ended with another status than 0, or not in time.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin if stdin is not None else "",
            env={**os.environ, **(env or {})},
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as absent:
        raise ClusterError(f"{words[0]} is not installed; see dev.cluster.packages") from absent
    except subprocess.TimeoutExpired as late:
        raise ClusterError(f"{' '.join(words)}: not done after {timeout} s") from late
    if done.returncode != 0:
        said = (done.stderr or done.stdout)[-4000:]
        raise ClusterError(f"{' '.join(words)}: status {done.returncode}\n{said}")
    return done.stdout


def wait_until(
    look: Callable[[], T | None], what: str, *, timeout: float = PATIENCE, every: float = 0.05
) -> T:
    """Look again and again until the result is true.

    Args:
        look: returns a true value once the condition holds.
        what: the condition as text, for the error: "pod npu-test-pod Running".
        timeout: seconds to wait.
        every: seconds between two looks.

    Returns:
        The first true value.

    Raises:
        ClusterError: no result was true in time; the message has the last one.
    """
    limit = time.monotonic() + timeout
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > limit:
            raise ClusterError(f"not within {timeout} s: {what} (last seen: {seen!r})")
        time.sleep(every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A running program.

    `child` is set for a starter (unshare, nsenter) that stays as the parent of the program that it
    starts: signals then go to that program.
    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    child: bool = False

    @classmethod
    def start(
        cls,
        name: str,
        argv: Sequence[str | Path],
        *,
        logs: Path,
        child: bool = False,
        outlives: bool = False,
    ) -> Program:
        """Start a program that ends with this process at the latest, unless it `outlives` that.

        A later start of the same name appends to the same log.
        """
        ends = () if outlives else ("setpriv", "--pdeathsig", "KILL", "--")
        log = logs / f"{name}.log"
        with log.open("ab") as stream:
            process = subprocess.Popen(
                [*ends, *(str(word) for word in argv)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(name=name, process=process, log=log, child=child)

    @property
    def pid(self) -> int | None:
        """Process id of the program itself, or None if it has ended (or not yet begun)."""
        if self.process.poll() is not None:
            return None
        pid = self.process.pid
        if not self.child:
            return pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            return None
        return int(children[0]) if children else None

    def check(self) -> None:
        """Raise ClusterError with the end of its log if the program has ended."""
        status = self.process.poll()
        if status is not None:
            said = self.log.read_text(errors="replace")[-4000:]
            raise ClusterError(f"{self.name} ended with status {status}\n{said}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a program that has ended gets none."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def stop(self, *, grace: float = 10) -> None:
        """End it with TERM, and with KILL after `grace` seconds."""
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it with KILL, and wait until it is gone.

        A namespace's process 1 is gone when all in it is, which takes a while
        when file systems have much to write.

        Raises:
            ClusterError: it was not gone in a minute.
        """
        if self.pid is None:  # a starter that has not started its program yet
            self.process.kill()
        self.signal(signal.SIGKILL)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired as late:
            raise ClusterError(f"{self.name} (pid {self.process.pid}) does not end") from late
