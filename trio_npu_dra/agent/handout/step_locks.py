"""The locks under which steps are done, for this process and other instances on the node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from trio_npu_dra.kit.base import disk, file_lock, storage

PATIENCE_SECONDS: Final = 5.0
"""Then the call is refused, and tries again as long as it has time."""

_PAUSE_SECONDS: Final = 0.02  # between two tries
_MODE: Final = 0o700
_SUFFIX: Final = ".lock"


def hold(
    path: Path, *, patience_seconds: float = PATIENCE_SECONDS
) -> AbstractAsyncContextManager[int]:
    """Hold one lock file while inside, as `file_lock.hold` does."""
    return file_lock.hold(path, pause_seconds=_PAUSE_SECONDS, patience_seconds=patience_seconds)


class StepLocks:
    """Locks by name, in a folder of their own; each file is removed after use.

    Args:
        state_folder: The driver's folder on the node.
        is_kept: Whether the file of a name stays.
    """

    def __init__(
        self, state_folder: Path, is_kept: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._folder = state_folder / "steps"
        self._is_kept = is_kept

    @asynccontextmanager
    async def hold(
        self, name: str, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> AsyncIterator[None]:
        """Hold the lock of a name while inside.

        Raises:
            LockHeld: Another task holds it for too long.
            StorageError: The folder or the file cannot be used.
        """
        await disk.run(partial(storage.make_folder, self._folder, mode=_MODE))
        path = self._folder / f"{name}{_SUFFIX}"
        async with hold(path, patience_seconds=patience_seconds):
            try:
                yield
            finally:
                if not self._is_kept(name):
                    with trio.CancelScope(shield=True):
                        await disk.run(partial(storage.remove, path))

    def sweep(self) -> None:
        """Remove files that killed instances left.

        Raises:
            StorageError: The folder cannot be read.
        """
        with storage.translated(f"read {self._folder}"):
            try:
                paths = list(self._folder.iterdir())
            except FileNotFoundError:
                return
        for path in paths:
            name = path.name.removesuffix(_SUFFIX)
            if name != path.name and not self._is_kept(name):
                storage.remove_if_abandoned(path)
