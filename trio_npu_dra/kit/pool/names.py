"""The names of slices: `<node>-<driver>-<index>-<random>`; pure.

The index says which part of the pool a slice is. Schedulers that sort slices by name go through the
pool in its order.
"""

from __future__ import annotations

import re

_BASE_LIMIT = 58
"""The API server cuts generateName at this length; a longer one would lose its index."""
_INDEX = re.compile(r"-([0-9a-f]{5})-")


def generate_name(node_name: str, driver: str, index: int) -> str:
    """The generateName of a slice: the index in five hex digits, before what the server adds.

    If node and driver have long names, their end is cut, not the index.
    """
    return f"{_stem(node_name, driver)}-{index:05x}-"


def index_in(name: str, node_name: str, driver: str) -> int | None:
    """The index in the name of one of this node's slices; `None` if the name is not ours."""
    stem = _stem(node_name, driver)
    found = _INDEX.match(name.removeprefix(stem)) if name.startswith(stem) else None
    return int(found[1], 16) if found else None


def _stem(node_name: str, driver: str) -> str:
    return f"{node_name}-{driver}"[: _BASE_LIMIT - len("-00000-")].rstrip("-.")
