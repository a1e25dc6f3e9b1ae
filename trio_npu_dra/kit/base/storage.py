"""The driver's files and folders on the node: whole or absent.

The daemon is root, so a name must not lead it elsewhere: it opens only regular files of limited
size, follows no symbolic link, and waits for no peer when it opens a file. Anything else under one
of its names is a `ForeignFile`. A rename follows no link either, so a file that is written whole
takes the place of what is there.

A disk may stall, so tasks of the daemon call these functions by `disk.run`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from trio_npu_dra.kit.base.errors import DriverError, ForeignFile, StorageError

SIZE_LIMIT: Final = 32 << 20
"""Bytes of a file, more than one can have: the 64 KiB of variables of a claim stand in its record
twice for each of at most 32 devices and shares, with up to six bytes for one in JSON."""

PLUGIN_FOLDER_MODE: Final = 0o750
"""Mode of the driver's folder in the kubelet's plugins folder."""

UNFINISHED: Final = re.compile(r"\..+\.[0-9a-f]{8}")
"""The names of `write_atomic`'s temporary files: no scan for records or CDI specs takes them."""

_SAFELY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_REFUSED: Final = {errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV}


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = True) -> None:
    """Replace *path* by *data*: a reader sees the old content or the new, never a part.

    Args:
        path: The file; its folder must exist.
        data: The whole content.
        mode: The file's permission bits, not narrowed by the umask.
        sync: Whether the content is on the disk before it gets its name. Without it, a power cut
            within the next seconds may leave an empty file; a killed process cannot.

    Raises:
        StorageError: The disk is full, read-only, or fails.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    with translated(f"write {path}"):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, mode)
        try:
            os.fchmod(descriptor, mode)
            _write_all(descriptor, data)
            if sync:
                os.fsync(descriptor)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_in_place(path: Path, data: bytes, *, mode: int) -> None:
    """Give a file that containers may have mounted this content, unless it has that: same inode.

    Whoever reads it meanwhile can see a part of each content, and a killed process leaves that. It
    is not synced.

    Raises:
        StorageError: The disk is full, read-only, or fails.
    """
    if holds(path, data, mode=mode):
        return
    with translated(f"write {path}"):
        descriptor, _ = open_file(path, os.O_WRONLY | os.O_CREAT, mode=mode)
        try:
            os.fchown(descriptor, os.geteuid(), -1)
            os.fchmod(descriptor, mode)
            _write_all(descriptor, data)
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make sure that a power cut neither loses names in *folder* nor brings names back."""
    with translated(f"sync {folder}"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    with translated(f"remove {path}"):
        path.unlink(missing_ok=True)


def remove_unfinished(folder: Path, prefix: str) -> None:
    """Remove temporary files of killed writers from *folder*, for files that begin with *prefix*.

    No writer of such files is at work. What cannot be removed does no harm.
    """
    for path in paths_in(folder):
        if path.name.startswith(f".{prefix}") and UNFINISHED.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()


def paths_in(folder: Path) -> list[Path]:
    """What a folder has; nothing if it is missing."""
    with translated(f"read {folder}"):
        try:
            return list(folder.iterdir())
        except FileNotFoundError:
            return []


def read_bytes(path: Path, *, limit: int = SIZE_LIMIT) -> bytes | None:
    """Read a whole file of at most *limit* bytes; `None` when it does not exist.

    Raises:
        ForeignFile: It is no file, or larger.
        StorageError: It exists and cannot be read.
    """
    with translated(f"read {path}"):
        try:
            descriptor, found = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            if found.st_size > limit:
                raise ForeignFile(f"{path} has {found.st_size} bytes, at most {limit} are read")
            return os.read(descriptor, found.st_size)
        finally:
            os.close(descriptor)


def holds(path: Path, data: bytes, *, mode: int) -> bool:
    """Whether a file of this user has these permission bits and contains exactly *data*."""
    try:
        is_right = has_form(path.lstat(), mode=mode)
        return is_right and read_bytes(path, limit=len(data)) == data
    except (OSError, StorageError):  # the caller writes an unreadable file again
        return False


def has_form(found: os.stat_result, *, mode: int) -> bool:
    """Whether it is a regular file of this user with these permission bits."""
    return found.st_mode == stat.S_IFREG | mode and found.st_uid == os.geteuid()


def open_file(path: Path, flags: int, *, mode: int = 0o600) -> tuple[int, os.stat_result]:
    """Open a regular file, or make one with this mode if *flags* say so.

    Returns:
        The descriptor, which the caller closes, and the status of the open file.

    Raises:
        ForeignFile: It is no regular file.
        OSError: It cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | _SAFELY, mode)
    except OSError as error:
        if error.errno in _REFUSED:
            raise ForeignFile(f"{path} is not a file of this driver") from error
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise ForeignFile(f"{path} is not a file of this driver")
    return descriptor, found


def make_folder(path: Path, *, mode: int) -> bool:
    """Make a folder, or restore owner, group and permission bits of an existing one.

    Folders above it are not made: if the kubelet's own folder is missing, it is not mounted. The
    umask does not narrow *mode*.

    Returns:
        Whether the folder was missing.

    Raises:
        StorageError: The folder cannot be made, or something else has its name. A link to a folder
            counts too: its author would get the claims of the node.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | _SAFELY
    with translated(f"make {path}"):
        is_new = False
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            path.mkdir(mode)
            is_new = True
            descriptor = os.open(path, flags)
        try:
            found, owner = os.fstat(descriptor), (os.geteuid(), os.getegid())
            if (found.st_uid, found.st_gid) != owner:
                os.fchown(descriptor, *owner)
            if stat.S_IMODE(found.st_mode) != mode:
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
    return is_new


@contextmanager
def translated(
    action: str, into: Callable[[str], DriverError] = StorageError
) -> Generator[None, None, None]:
    """Raise errors of the operating system as *into*: "cannot *action*: …"."""
    try:
        yield
    except OSError as error:
        raise into(f"cannot {action}: {error.strerror or error}") from error
