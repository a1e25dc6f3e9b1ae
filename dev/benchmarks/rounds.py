"""One round: every figure a few times, and right beside each its floors."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dev.benchmarks.api import RawGets
from dev.benchmarks.drivers import Driver
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim

CLAIMS: Final = 8
RECORD: Final = b"x" * 3700
"""Has the size of a claim record of one device."""

FLOORS: Final = {
    "prepare": ("call", "get", "write"),
    "unprepare": ("call", "remove"),
    "prepare again": ("call", "get"),
    "burst of 8 prepare calls": ("8 calls", "8 gets", "8 writes"),
    "8 claims in one prepare call": ("call", "8 gets", "8 writes"),
    "8 claims in one unprepare call": ("call", "8 removes"),
    "CPU of prepare + unprepare": ("CPU of a call", "CPU of a call"),
}
"""The figures of a round, all in milliseconds, and the floors of each."""

Samples = dict[str, list[float]]


def play(driver: Driver, claims: Sequence[Claim], gets: RawGets) -> Samples:
    """Measure everything once, the single calls once for each claim.

    Args:
        driver: The driver to measure.
        claims: Claims of its devices, none of them prepared, before and afterwards.
        gets: Reads the same claims.

    Returns:
        Milliseconds by figure and by floor.
    """
    samples: Samples = {
        name: [] for name in (*FLOORS, *(floor for floors in FLOORS.values() for floor in floors))
    }
    _play_singles(driver, claims, samples)
    _play_eights(driver, claims, samples)
    for _ in claims:
        samples["get"].append(_timed(partial(gets.ask, 1)))
    samples["8 gets"].append(_timed(partial(gets.ask, CLAIMS)))
    _play_files(driver.state, samples)
    return samples


def _play_singles(driver: Driver, claims: Sequence[Claim], samples: Samples) -> None:
    caller, count = driver.caller, len(claims)
    used = driver.usage().cpu_ms
    for claim in claims:
        samples["prepare"].append(caller.prepare([claim]))
        samples["unprepare"].append(caller.unprepare([claim]))
    after = driver.usage().cpu_ms
    samples["CPU of prepare + unprepare"].append((after - used) / count)
    for _ in range(2 * count):
        samples["call"].append(caller.prepare([]))
    samples["CPU of a call"].append((driver.usage().cpu_ms - after) / (2 * count))
    for claim in claims:
        caller.prepare([claim])
        samples["prepare again"].append(caller.prepare([claim]))
        caller.unprepare([claim])


def _play_eights(driver: Driver, claims: Sequence[Claim], samples: Samples) -> None:
    caller = driver.caller
    samples["8 calls"].append(caller.prepare(*([] for _ in claims)))
    samples["burst of 8 prepare calls"].append(caller.prepare(*([claim] for claim in claims)))
    caller.unprepare(claims)
    samples["8 claims in one prepare call"].append(caller.prepare(claims))
    samples["8 claims in one unprepare call"].append(caller.unprepare(claims))


def _play_files(folder: Path, samples: Samples) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        paths = [Path(temporary) / str(number) for number in range(CLAIMS)]
        for path in paths:
            samples["write"].append(_timed(partial(_write, [path])))
            samples["remove"].append(_timed(partial(_remove, [path])))
        samples["8 writes"].append(_timed(partial(_write, paths)))
        samples["8 removes"].append(_timed(partial(_remove, paths)))


def _write(paths: Sequence[Path]) -> None:
    """Write files that are whole or absent, however this process ends."""
    for path in paths:
        temporary = path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, RECORD)
        os.close(descriptor)
        temporary.rename(path)


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink()


def _timed(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - began)
