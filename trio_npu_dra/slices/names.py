"""The names of slices: `<node>-<driver>-<index>-<random>`; pure.

The index says which part of the pool a slice is, and makes schedulers that sort slices by name go
through the pool in its order.
"""

from __future__ import annotations

import re

_BASE_LIMIT = 58
"""The API server cuts generateName here, and would cut the index away."""
_INDEX = re.compile(r"-([0-9a-f]{5})-")


def generate_name(node_name: str, driver: str, index: int) -> str:
    """The generateName of a slice: the index in five hex digits, before what the server adds.

    A long name of node and driver loses its end, not its index.
    """
    return f"{_stem(node_name, driver)}-{index:05x}-"


def index_in(name: str, node_name: str, driver: str) -> int | None:
    """The index in the name of one of this node's slices; `None` when we did not name it."""
    stem = _stem(node_name, driver)
    found = _INDEX.match(name.removeprefix(stem)) if name.startswith(stem) else None
    return int(found[1], 16) if found else None


def _stem(node_name: str, driver: str) -> str:
    return f"{node_name}-{driver}"[: _BASE_LIMIT - len("-00000-")].rstrip("-.")
