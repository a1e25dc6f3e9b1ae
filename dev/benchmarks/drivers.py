"""Drivers under measurement."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.benchmarks.api import Api, SliceWatch
from dev.benchmarks.caller import Caller, register
from dev.benchmarks.machine import Usage
from dev.cluster.processes import Program, wait_until

START_SECONDS = 30.0
LOOK_SECONDS = 0.001
"""Pause between two looks for the registration socket; the kubelet has inotify."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How to start a driver.

    Attributes:
        name: What tables call it.
        words: The command: program and arguments, without the flags that `Driver.start` adds.
        is_in_pod: Whether it finds the API server as in a pod, and needs no kubeconfig.
    """

    name: str
    words: tuple[str, ...]
    is_in_pod: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A running driver that is registered and has published.

    Attributes:
        name: What tables call it.
        state: The folder of its service socket, where drivers keep records.
        allocations: For each device that it published, the result of an allocation.
        get_info_ms: From its start until it had answered GetInfo.
        slice_ms: From its start until its first ResourceSlice was accepted.
    """

    name: str
    program: Program
    caller: Caller
    state: Path
    allocations: list[dict[str, Any]]
    get_info_ms: float
    slice_ms: float

    @classmethod
    def start(cls, command: Command, api: Api, *, folder: Path, kubeconfig: Path) -> Driver:
        """Start it on a node of its own, which must exist, and wait until it has published.

        Its files are in *folder*, which has the node's name. A driver in a pod needs no kubeconfig.
        """
        registrar, plugins = folder / "registry", folder / "plugins"
        for place in (registrar, plugins, folder / "cdi"):
            place.mkdir(parents=True, exist_ok=True)
        for stale in registrar.iterdir():
            stale.unlink()
        flags = {
            **({} if command.is_in_pod else {"--kubeconfig": kubeconfig}),
            "--node-name": folder.name,
            "--cdi-root": folder / "cdi",
            "--kubelet-registrar-directory-path": registrar,
            "--kubelet-plugins-directory-path": plugins,
        }
        api.remove_slices(folder.name)
        watch = SliceWatch(api, folder.name)
        argv = [*command.words, *(f"{flag}={value}" for flag, value in flags.items())]
        began = time.time()
        program = Program.start(command.name, argv, logs=folder)
        info, said_at = register(_appeared(registrar, program))
        service = Path(info.endpoint)
        published = watch.wait(bool)
        watch.close()
        return cls(
            name=command.name,
            program=program,
            caller=Caller(service),
            state=service.parent,
            allocations=api.allocations(folder.name),
            get_info_ms=1000 * (said_at - began),
            slice_ms=1000 * (published - began),
        )

    def usage(self) -> Usage:
        """The resources that it has used so far."""
        return Usage.of(self.program.process.pid)

    def stop(self) -> None:
        """End it."""
        self.caller.close()
        self.program.stop()


def _appeared(registrar: Path, program: Program) -> Path:
    """The registration socket, once the driver listens there, which may be a moment later."""

    def look() -> Path | None:
        program.check()
        return next(filter(_is_answered, registrar.iterdir()), None)

    return wait_until(look, f"a socket in {registrar}", timeout=START_SECONDS, every=LOOK_SECONDS)


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
