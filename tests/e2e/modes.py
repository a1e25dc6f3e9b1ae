"""The permissions of the driver's files on a node: as documented, and as they are."""

from __future__ import annotations

import re

from dev.cluster.deploy import ROOT
from dev.cluster.driver import Driver

WITH_RESOURCES = "With `--device-plugin` there are also"
"""The sentence before the table of files that exist only with device plugin resources."""


def documented(*, with_resources: bool = False) -> dict[str, str]:
    """Permission bits by path, `*` standing for what differs, as docs/security.md has them.

    Args:
        with_resources: Those of device plugin resources, instead of those that are always there.
    """
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    always, _, then = text.partition(WITH_RESOURCES)
    rows = re.findall(
        r"^\| `(/[^`]+)` \| (0[0-7]{3}) \|", then if with_resources else always, re.MULTILINE
    )
    return {re.sub(r"<[^>]+>", "*", path): mode for path, mode in rows}


def assert_as_documented(driver: Driver, *, with_resources: bool = False) -> None:
    """The driver's files on the node are root's, with the permissions that docs/security.md has."""
    root, wanted = driver.node.root, documented(with_resources=with_resources)
    assert wanted
    seen = {
        pattern: {
            (f"{found.stat().st_mode & 0o7777:04o}", found.stat().st_uid)
            for found in root.glob(pattern.strip("/"))
        }
        for pattern in wanted
    }
    assert seen == {pattern: {(mode, 0)} for pattern, mode in wanted.items()}
