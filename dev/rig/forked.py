"""`npu-dra serve` in a fork of a process that has already imported it.

`npu-dra serve` spends most of its CPU time on imports. Python's fork server is a process with one
thread that imports this module once; each daemon is a fork of it, and the fork server reports how
it ended.
"""

import atexit
import multiprocessing
import os
import resource
import sys
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType

import httpcore  # noqa: F401 - what the first watch imports

from dev.rig.notified import Filter
from trio_npu_dra.agent.cli import serve  # noqa: F401 - what `main` imports when it is chosen
from trio_npu_dra.agent.cli.main import main
from trio_npu_dra.kit.api import streams  # noqa: F401 - what the first watch imports

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


def start(
    environment: Mapping[str, str],
    log: Path,
    limits: Mapping[int, int],
    calls: Filter | None = None,
    constants: Mapping[str, object] = MappingProxyType({}),
) -> ForkServerProcess:
    """Start the daemon with just this environment; see `dev.rig.agent.running_agent`."""
    arguments = (dict(environment), log, dict(limits), calls, dict(constants))
    process = _context.Process(target=_serve, args=arguments)
    process.start()
    return process


def _serve(
    environment: Mapping[str, str],
    log: Path,
    limits: Mapping[int, int],
    calls: Filter | None,
    constants: Mapping[str, object],
) -> None:
    """Be the program, in the child."""
    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        setattr(resolve_name(module), constant, value)
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))
    with log.open("wb") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = ["serve"]
    if calls is not None:
        calls.load()
    try:
        sys.exit(main())
    except Exception:  # noqa: BLE001 - what the interpreter would do, which is not asked here
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()
