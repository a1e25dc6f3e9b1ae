"""Whether the node has the Ascend driver, whether it should, and whether that was replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from trio_npu_dra.ascend.ascend_driver import load_library, wait_replaced
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import LibraryMissing
from trio_npu_dra.ascend.dcmi.types import DcmiCall
from trio_npu_dra.ascend.host import Host


def test_a_node_with_the_driver_has_its_library(host: Host) -> None:
    """Its calls are reported."""
    calls: list[DcmiCall] = []
    dcmi = load_library(host, calls.append)
    assert dcmi is not None
    dcmi.init()
    assert [call.function for call in calls] == ["dcmi_init"]


def test_a_node_without_npus_has_no_driver(tmp_path: Path) -> None:
    """That is no error."""
    assert load_library(Host(host_root=tmp_path, dev_root=tmp_path, sysfs_root=tmp_path)) is None


def test_npus_without_a_driver_are_an_error(host: Host, tmp_path: Path) -> None:
    """They cannot be served, and their owner expects it."""
    with pytest.raises(LibraryMissing, match="install the Ascend driver"):
        load_library(replace(host, host_root=tmp_path))


def _renamed(library: Path) -> None:
    new = shutil.copy(library, library.with_name("new"))
    Path(new).rename(library)


def _overwritten(library: Path) -> None:
    # By its time alone: to cut short what this process has loaded would end it.
    os.utime(library, ns=(0, library.stat().st_mtime_ns + 1))


def _other_folder(library: Path) -> None:
    driver = library.parents[1]
    driver.rename(driver.with_name("old"))
    shutil.copytree(driver.with_name("old"), driver)


def _other_target(library: Path) -> None:
    ascend = library.parents[2]
    shutil.copytree(ascend.resolve(), ascend.with_name("Ascend-2"))
    ascend.unlink()
    ascend.symlink_to("Ascend-2")


def _dependency(library: Path) -> None:
    shutil.copy(library, library.with_name("libascend_hal.so"))


def _away(library: Path) -> None:
    library.rename(library.with_name("away"))


def _away_and_back(library: Path) -> None:
    library.rename(library.with_name("away")).rename(library)


@pytest.mark.parametrize(
    ("change", "is_replaced"),
    [
        (_renamed, True),
        (_overwritten, True),
        (_other_folder, True),
        (_other_target, True),
        (_dependency, True),
        (_away, False),
        (_away_and_back, False),
    ],
)
async def test_a_replaced_library_is_noticed(
    host: Host,
    autojump_clock: MockClock,
    change: Callable[[Path], object],
    *,
    is_replaced: bool,
) -> None:
    """However it was; while there is none the loaded one is used."""
    del autojump_clock
    ascend = host.host_root / "usr/local/Ascend"
    ascend.rename(ascend.with_name("Ascend-1"))
    ascend.symlink_to("Ascend-1")
    dcmi = Dcmi.load(host.host_root)
    dcmi.init()
    change(ascend / "driver/lib64/libdcmi.so")
    with trio.move_on_after(60) as patience:
        await wait_replaced(dcmi)
    assert patience.cancelled_caught is not is_replaced


async def test_a_library_that_is_still_being_replaced_is_left_alone(
    host: Host, autojump_clock: MockClock
) -> None:
    """A process that started then could find the half of it."""
    del autojump_clock
    dcmi = Dcmi.load(host.host_root)
    library = Path(dcmi.library_path)
    with trio.move_on_after(60) as patience:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_replaced, dcmi)
            for _ in range(20):
                await trio.sleep(4)
                _overwritten(library)
    assert patience.cancelled_caught
