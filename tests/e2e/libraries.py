"""What a container's loader finds."""

from __future__ import annotations

from tests.e2e.space import Space

LIBRARIES = "/usr/local/Ascend/driver/lib64"
"""Where the Ascend driver's are."""


def loads(space: Space, name: str, *, container: str | None = None) -> str:
    """Where the loader of the pod `user` finds a library; empty if it does not."""
    look = f"LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD={name} /usr/bin/true"
    said = space.execute("user", "sh", "-c", look, container=container)
    lines = [line.split() for line in said.splitlines()]
    return next((words[2] for words in lines if words[:2] == [name, "=>"]), "")
