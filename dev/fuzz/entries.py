"""Entries that a folder may have: of every kind, under every name."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from hypothesis import strategies as st

from dev.fuzz.values import expanded


class Kind(StrEnum):
    """The kind of an entry."""

    FILE = "file"
    FOLDER = "folder"
    FULL_FOLDER = "folder with a file"
    FIFO = "fifo"
    SOCKET = "socket"
    DANGLING = "link to nothing"
    LOOP = "link to itself"
    TO_FOLDER = "link to a folder"
    TO_FILE = "link to a file"


Entry: TypeAlias = tuple[Kind, bytes]
Entries: TypeAlias = Mapping[str, Entry]

_characters = st.characters(codec="utf-8", exclude_characters="/\0")
_any_name = (
    st.text(_characters, min_size=1, max_size=12)
    | st.binary(min_size=1, max_size=12)
    .filter(lambda name: not {*b"/\0"} & {*name})
    .map(os.fsdecode)
).filter(lambda name: name not in {".", ".."})


def entries(
    names: Iterable[str], contents: st.SearchStrategy[bytes]
) -> st.SearchStrategy[dict[str, Entry]]:
    """A few entries, most under one of *names*, most of them files."""
    kinds = st.just(Kind.FILE) | st.sampled_from(Kind)
    name = st.sampled_from(list(names)) | _any_name
    return st.dictionaries(name, st.tuples(kinds, contents), max_size=5)


def lay_out(folder: Path, wanted: Entries) -> None:
    """Put entries into a folder; they replace those that are there."""
    target = folder.parent / "target"
    target.mkdir(exist_ok=True)
    (target / "file").write_bytes(b"{}")
    for name, (kind, content) in wanted.items():
        path = folder / name
        if os.path.lexists(path):
            path.unlink()
        _make(path, kind, expanded(content), target)


def _make(path: Path, kind: Kind, content: bytes, target: Path) -> None:
    match kind:
        case Kind.FILE:
            path.write_bytes(content)
        case Kind.FOLDER:
            path.mkdir()
        case Kind.FULL_FOLDER:
            path.mkdir()
            (path / "x.json").write_bytes(content)
        case Kind.FIFO:
            os.mkfifo(path)
        case Kind.SOCKET:
            os.mknod(path, stat.S_IFSOCK | 0o600)
        case _:
            to: dict[Kind, str | Path] = {
                Kind.DANGLING: "nothing",
                Kind.LOOP: path.name,
                Kind.TO_FILE: target / "file",
            }
            path.symlink_to(to.get(kind, target))


def found(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All entries of a folder: type and mode, and their content or target."""
    return {path.name: (path.lstat().st_mode, _content(path)) for path in folder.iterdir()}


def clear(folder: Path) -> None:
    """Empty a folder, which may be missing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _content(path: Path) -> bytes:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return os.fsencode(path.readlink())
    if stat.S_ISDIR(mode):
        return b"\0".join(os.fsencode(entry.name) for entry in sorted(path.iterdir()))
    return path.read_bytes() if stat.S_ISREG(mode) else b""
