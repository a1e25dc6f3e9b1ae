"""The driver's files and folders on the node: whole or absent, and its own.

The daemon is root, so a name must not lead it elsewhere. It opens only regular files of its own
user and of limited size, follows no symbolic link, and waits for no peer when it opens a file.
Anything else under one of its names is *foreign*, a `ForeignFile`: readers take it for a file
without content, and writers replace it. A rename follows no link either; it cannot replace a
folder, which gets the name `<name>.foreign-<random>` and stays for people to examine.

A disk may stall, so tasks of the daemon call these functions by `disk.run`.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from trio_npu_dra.kit.base.errors import DriverError, ForeignFile, StorageError

log = logging.getLogger(__name__)

SIZE_LIMIT: Final = 1 << 20
"""Bytes of a file: a claim has at most 32 devices, and its files have some 10 KB."""

PLUGIN_FOLDER_MODE: Final = 0o750
"""Mode of the driver's folder in the kubelet's plugins folder."""

_SAFELY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_REFUSED: Final = {errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV}
_UNFINISHED: Final = re.compile(r"\..+\.[0-9a-f]{8}")


# --- writing -------------------------------------------------------------------------------------


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = True) -> None:
    """Replace *path* by *data*: a reader sees the old content or the new, never a part.

    The temporary file's name starts with a dot and does not end in `.json`, so that no scan of the
    folder for records or CDI specs takes it for one.

    Args:
        path: The file; its folder must exist.
        data: The whole content.
        mode: The file's permission bits, not narrowed by the umask.
        sync: Whether the content is on the disk before it gets its name. Without it, a power cut
            within the next seconds may leave an empty file; a killed process cannot.

    Raises:
        StorageError: The disk is full, read-only, or fails.
    """
    with translated(f"write {path}"):
        _write_once(path, data, mode, sync)


def _write_once(path: Path, data: bytes, mode: int, sync: bool) -> None:
    temporary = f"{path.parent}/.{path.name}.{os.urandom(4).hex()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, mode)
    try:
        _set_mode(descriptor, os.fstat(descriptor), mode)
        _write_all(descriptor, data)
        if sync:
            os.fsync(descriptor)
        _replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)


def _set_mode(descriptor: int, found: os.stat_result, mode: int) -> None:
    """Give a file its mode, unless it has that: a new one has what the umask left."""
    if not has_form(found, mode=mode):
        os.fchmod(descriptor, mode)


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
        try:
            descriptor, found = open_file(path, os.O_WRONLY | os.O_CREAT, mode=mode)
        except ForeignFile:  # no container of ours has it
            remove(path)
            descriptor, found = open_file(path, os.O_WRONLY | os.O_CREAT, mode=mode)
        try:
            _set_mode(descriptor, found, mode)
            _write_all(descriptor, data)
            if found.st_size > len(data):
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


def _replace(path: str | Path, target: Path) -> None:
    try:
        os.replace(path, target)
    except IsADirectoryError:
        set_aside(target)
        os.replace(path, target)


def remove(path: Path) -> bool:
    """Remove a file, or set aside the folder that has its name; return whether it existed."""
    with translated(f"remove {path}"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        except IsADirectoryError:
            set_aside(path)
    return True


def set_aside(path: Path) -> Path:
    """Rename something foreign of any kind, log that, and return its new path."""
    aside = path.with_name(f"{path.name}.foreign-{os.urandom(4).hex()}")
    with translated(f"set {path} aside"):
        path.rename(aside)
    log.error(
        "something foreign had the name of a file of the driver and was renamed",
        extra={"path": str(path), "now": aside.name},
    )
    return aside


# --- temporary files of killed writers -----------------------------------------------------------


def remove_unfinished(folder: Path, prefix: str) -> None:
    """Remove temporary files of killed writers from *folder*, for files that begin with *prefix*.

    No writer of such files is at work.
    """
    with translated(f"read {folder}"):
        try:
            paths = list(folder.iterdir())
        except FileNotFoundError:
            return
    for path in paths:
        if path.name.startswith(f".{prefix}") and is_unfinished(path.name):
            remove_if_abandoned(path)


def is_unfinished(name: str) -> bool:
    """Whether `write_atomic` gives its temporary files such names."""
    return _UNFINISHED.fullmatch(name) is not None


def remove_if_abandoned(path: Path) -> None:
    """Remove a file that no process has locked; one that cannot be removed does no harm."""
    try:
        descriptor, found = open_file(path, os.O_RDONLY)
    except (OSError, ForeignFile):  # gone by now, or nothing that the driver makes
        return
    try:
        if try_lock(descriptor) and os.path.samestat(os.lstat(path), found):
            path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning(
            "a file that a killed writer left cannot be removed",
            extra={"path": str(path), "error": error.strerror},
        )
    finally:
        os.close(descriptor)


# --- reading -------------------------------------------------------------------------------------


def read_bytes(path: Path, *, limit: int = SIZE_LIMIT, any_owner: bool = False) -> bytes | None:
    """Read a whole file; `None` when it does not exist.

    Args:
        path: The file.
        limit: Its maximum size in bytes.
        any_owner: Whether it may belong to another user.

    Raises:
        ForeignFile: It is no file, another user's, or larger.
        StorageError: It exists and cannot be read.
    """
    with translated(f"read {path}"):
        try:
            descriptor, found = open_file(path, os.O_RDONLY, any_owner=any_owner)
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


def open_file(
    path: Path, flags: int, *, any_owner: bool = False, mode: int = 0o600
) -> tuple[int, os.stat_result]:
    """Open a regular file of this user, or make one with this mode if *flags* say so.

    Returns:
        The descriptor, which the caller closes, and the status of the open file.

    Raises:
        ForeignFile: It is no regular file, or another user's.
        OSError: It cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | _SAFELY, mode)
    except OSError as error:
        if error.errno in _REFUSED:
            raise ForeignFile(f"{path} is not a file of this driver") from error
        raise
    found = os.fstat(descriptor)
    if not (stat.S_ISREG(found.st_mode) and (any_owner or found.st_uid == os.geteuid())):
        os.close(descriptor)
        raise ForeignFile(f"{path} is not a file of this driver")
    return descriptor, found


# --- folders, locks, errors -----------------------------------------------------------------------


def make_folder(path: Path, *, mode: int) -> bool:
    """Make a folder, or restore owner, group and permission bits of an existing one.

    Folders above it are not made: if the kubelet's own folder is missing, it is not mounted. The
    umask does not narrow *mode*.

    Returns:
        Whether the folder was missing.

    Raises:
        ForeignFile: Something else has its name. A link to a folder counts too: its author would
            get the claims of the node.
        StorageError: The folder cannot be made.
    """
    is_missing = False
    with translated(f"make {path}"):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            is_missing = True
            with suppress(FileExistsError):  # by another instance, a moment ago
                path.mkdir(mode)
            found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ForeignFile(f"cannot make {path}: something else is in its place")
    wanted = (stat.S_IFDIR | mode, os.geteuid(), os.getegid())
    if (found.st_mode, found.st_uid, found.st_gid) == wanted:
        return is_missing
    with translated(f"put back mode and owner of {path}"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
        try:
            os.fchown(descriptor, os.geteuid(), os.getegid())
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
    if not is_missing:
        log.warning("mode and owner of a folder are put back", extra={"path": str(path)})
    return is_missing


def try_lock(descriptor: int) -> bool:
    """Take the lock on an open file, unless another process has it; closing the file unlocks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def translated(
    action: str, into: Callable[[str], DriverError] = StorageError
) -> Generator[None, None, None]:
    """Raise errors of the operating system as *into*: "cannot *action*: …"."""
    try:
        yield
    except OSError as error:
        raise into(f"cannot {action}: {error.strerror or error}") from error
