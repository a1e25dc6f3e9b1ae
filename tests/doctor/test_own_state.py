"""What the driver keeps on the node, and whether it can keep more."""

from __future__ import annotations

import os

import pytest

from trio_npu_dra.tools.doctor.own_state import is_full


@pytest.mark.parametrize(
    ("blocks", "files", "files_left", "is_it"),
    [
        (1, 100, 1, False),
        (0, 100, 1, True),
        (1, 100, 0, True),
        (1, 0, 0, False),
        (0, 0, 0, True),
    ],
    ids=["free", "no space", "no more files", "btrfs", "btrfs without space"],
)
def test_disk_is_full_if_it_takes_no_file(
    blocks: int, files: int, files_left: int, *, is_it: bool
) -> None:
    """For want of space, or of files where their number has a limit."""
    # As statvfs(3) has them: sizes of blocks; blocks, free, ours; files, free, ours; flags, names.
    disk = os.statvfs_result(
        (4096, 4096, 100, blocks, blocks, files, files_left, files_left, 0, 255)
    )
    assert is_full(disk) == is_it
