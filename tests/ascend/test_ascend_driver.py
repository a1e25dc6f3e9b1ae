"""Whether the node has the Ascend driver, and whether it should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trio_npu_dra.ascend.ascend_driver import load_library
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
