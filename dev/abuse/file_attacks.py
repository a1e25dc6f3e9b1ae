"""Things that an attacker who can write to the driver's folders can put there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.abuse.node import HarmDone
from dev.rig.parts import DRIVER, Rig

_DECOY = b"a foreign file\n"
_UID = "00000000-0000-4000-8000-000000000000"


def state(rig: Rig) -> Path:
    """The driver's folder."""
    return rig.folder / "plugins" / DRIVER


def fault_memory(rig: Rig) -> Path:
    """The driver's memory of faults."""
    return state(rig) / "faults.json"


def record(rig: Rig, name: str = f"{_UID}.json") -> Path:
    """A file among the records."""
    return state(rig) / "claims" / name


def cdi_file(rig: Rig, prefix: str = "", uid: str = _UID) -> Path:
    """A file among the CDI files."""
    return rig.folder / "cdi" / f"{prefix}{DRIVER}-npu_{uid}.json"


def fifo(path: Path, _: int) -> None:
    """A FIFO, which blocks any process that opens it."""
    os.mkfifo(path)


def folder(path: Path, _: int) -> None:
    """A folder with something in it."""
    path.mkdir()
    (path / "file").touch()


def nested(path: Path, depth: int) -> None:
    """JSON nested so deep."""
    path.write_bytes(b'{"version":' + b"[" * depth)


def large(path: Path, mebibytes: int) -> None:
    """A sparse file of so many MiB."""
    path.touch()
    os.truncate(path, mebibytes << 20)


@contextmanager
def planted(
    make: Callable[[Path, int], None], _rig: Rig, path: Path, size: int = 0
) -> Iterator[None]:
    """Something foreign is in the place of *path*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove(path)
    make(path, size)
    try:
        yield
    finally:
        _remove(path)


@contextmanager
def linked(rig: Rig, path: Path, _: int) -> Iterator[None]:
    """A symbolic link to a foreign file is in the place of *path*."""
    decoy = rig.folder / "decoy"
    decoy.write_bytes(_DECOY)
    decoy.chmod(0o640)
    with planted(lambda path, _: path.symlink_to(decoy), rig, path):
        yield
        if decoy.read_bytes() != _DECOY or decoy.stat().st_mode & 0o777 != 0o640:
            raise HarmDone(f"a foreign file is overwritten through {path.name}")


@contextmanager
def many_records(rig: Rig, count: int) -> Iterator[None]:
    """There are so many files that are no records."""
    record(rig).parent.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        record(rig, f"{number}.json").touch()
    yield
    for number in range(count):
        _remove(record(rig, f"{number}.json"))


@contextmanager
def no_records_folder(rig: Rig) -> Iterator[None]:
    """The folder of the records is gone."""
    shutil.rmtree(record(rig).parent, ignore_errors=True)
    yield


@contextmanager
def given_away(path: Path) -> Iterator[None]:
    """Another user owns *path*, if we may give it away, and everyone may write to it."""
    right = path.stat()
    path.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(path, 1, 1)
    yield
    now = path.stat()
    if (now.st_mode, now.st_uid) != (right.st_mode, right.st_uid):
        raise HarmDone(f"{path.name} stays {now.st_mode & 0o777:04o} of user {now.st_uid}")


@contextmanager
def cdi_file_lost(rig: Rig) -> Iterator[None]:
    """The only CDI file is gone, and a folder has the name of an unfinished one."""
    (path,) = rig.cdi_files
    path.unlink()
    with planted(folder, rig, cdi_file(rig, prefix=".")):
        yield
    if not path.is_file():
        raise HarmDone(f"{path.name} is not made again")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
