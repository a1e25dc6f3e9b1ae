"""Writes of ours that the watch has not shown yet.

The watch shows a write about when the API server answers it, often later. A view from before looks
as if somebody had undone the write, and would cost another look.
"""

from __future__ import annotations

from collections.abc import Mapping

from trio_npu_dra.kit.api.objects import ResourceSlice

Slices = Mapping[str, ResourceSlice]
"""By name."""


class OwnWrites:
    """What the watch is to show.

    A version that somebody else overwrites before we have the answer is never seen here: whoever
    waits for the watch needs a limit.
    """

    def __init__(self) -> None:
        self._versions: dict[str, str | None] = {}  # by name; None: it is gone

    @property
    def are_seen(self) -> bool:
        """Whether the watch has shown all of them."""
        return not self._versions

    def note(self, name: str, version: str | None, shown: Slices) -> None:
        """Note a write.

        Args:
            name: The slice.
            version: The resourceVersion that it got; None if it was deleted.
            shown: What the watch shows now.
        """
        self._versions[name] = version
        self.compare(shown)

    def compare(self, shown: Slices) -> None:
        """Forget the writes that the watch shows."""
        self._versions = {
            name: version
            for name, version in self._versions.items()
            if _version(shown.get(name)) != version
        }

    def forget(self) -> None:
        """Expect nothing of the watch any more."""
        self._versions.clear()


def _version(item: ResourceSlice | None) -> str | None:
    return item.metadata.resource_version if item is not None else None
