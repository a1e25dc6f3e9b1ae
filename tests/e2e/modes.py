"""The driver's files on a node and their permissions: as documented, and as they are."""

from __future__ import annotations

import re

from dev.cluster.deploy import ROOT
from dev.cluster.driver import DRIVER, Driver
from trio_npu_dra.kit.base import storage

TABLES = "With `--device-plugin` there are also|At times there are also"
"""The beginnings of the sentences before the second and the third table."""
PLACES = (
    f"var/lib/kubelet/plugins/{DRIVER}/**/*",
    f"var/lib/kubelet/plugins_registry/{DRIVER}*",
    f"var/lib/kubelet/device-plugins/{DRIVER}*",
    f"etc/cdi/{DRIVER}*",
)
"""Where all files are the driver's."""


def documented() -> list[dict[str, str]]:
    """Permission bits by path, `*` standing for what differs, as docs/security.md has them.

    Of files that are always there, those of device plugin resources, and the others.
    """
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    return [
        {
            re.sub(r"<[^>]+>", "*", path): mode
            for path, mode in re.findall(r"^\| `(/[^`]+)` \| (0[0-7]{3}) \|", part, re.MULTILINE)
        }
        for part in re.split(TABLES, text)
    ]


def assert_as_documented(driver: Driver, *, with_resources: bool = False) -> None:
    """The driver's files are those of docs/security.md, root's, with the permissions it has.

    Files that are always there have to be there, or with *with_resources* those of resources.
    """
    root, (always, of_resources, at_times) = driver.node.root, documented()
    needed = of_resources if with_resources else always
    listed = set()
    for pattern, mode in (always | of_resources | at_times).items():
        found = set(root.glob(pattern.strip("/")))
        modes = {(f"{one.stat().st_mode & 0o7777:04o}", one.stat().st_uid) for one in found}
        assert modes == {(mode, 0)} or not (modes or pattern in needed), pattern
        listed |= found
    there = {path for place in PLACES for path in root.glob(place)}
    unlisted = {path for path in there - listed if not storage.UNFINISHED.fullmatch(path.name)}
    assert unlisted == set()
