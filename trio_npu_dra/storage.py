"""Files that are whole or absent, where that is asked for after a power cut too.

Folders are never synced: whether a file has come or gone matters only as long as the boot lasts
(`claims.records`), and so long everybody sees it at once.

Synchronous on purpose: callers on the event loop decide whether a write is worth a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trio_npu_dra.crashpoints import Point, reached
from trio_npu_dra.errors import StorageError


def write_atomic(
    path: Path,
    data: bytes,
    *,
    mode: int = 0o600,
    sync: bool = True,
    before_rename: Point | None = None,
) -> None:
    """Replace *path* by *data*: a reader sees the old content or the new, never a part.

    The temporary file starts with a dot and does not end in `.json`, so that nobody who scans the
    folder for records or CDI specs takes it for one.

    Args:
        path: The file; its folder must exist.
        data: The whole content.
        mode: The file's permission bits, not narrowed by the umask.
        sync: Whether the content is on the disk before it gets its name. Without it, a power cut
            within the next seconds may leave an empty file; a killed process may not.
        before_rename: The crash point between the whole temporary file and its new name.

    Raises:
        StorageError: The disk is full, read-only, or fails.
    """
    with _translated("write", path):
        temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
        try:
            with temporary.open("xb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            if before_rename is not None:
                reached(before_rename)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def remove_unfinished(folder: Path, prefix: str) -> None:
    """Remove what killed writers left of the files in *folder* whose names begin with *prefix*.

    Raises:
        StorageError: One cannot be removed.
    """
    for path in folder.glob(f".{prefix}*"):
        remove(path)


def remove(path: Path) -> bool:
    """Remove a file; a missing one is fine.

    Returns:
        Whether the file was there.

    Raises:
        StorageError: It exists and cannot be removed.
    """
    with _translated("remove", path):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
    return True


def read_bytes(path: Path) -> bytes | None:
    """Read a whole file; `None` when it does not exist.

    Raises:
        StorageError: It exists and cannot be read.
    """
    with _translated("read", path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


@contextmanager
def _translated(action: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {action} {path}: {error.strerror or error}") from error
