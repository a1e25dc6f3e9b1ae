"""The image has the needed files, all that these need, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from requirements import image_root
from requirements.image_root import Root, linked, standard_library


def test_links_are_followed_and_kept(tmp_path: Path) -> None:
    """`awk` is a link to a link: the tree has both links, and their target."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "mawk").write_text("program")
    (there / "chosen").symlink_to(there / "mawk")
    (there / "awk").symlink_to("chosen")
    root = Root(tmp_path / "root")
    root.take(there / "awk")

    place = root.place(there)
    assert (place / "awk").readlink() == Path("chosen")
    assert (place / "chosen").readlink() == there / "mawk"
    assert (place / "mawk").read_text() == "program"


def test_no_file_gives_away_rights(tmp_path: Path) -> None:
    """`mount` is set-user-ID in Debian but not here, and no file is writable for its group."""
    program = tmp_path / "mount"
    program.write_text("")
    program.chmod(0o6775)
    root = Root(tmp_path / "root")
    root.take(program)
    assert root.place(program).stat().st_mode & 0o7777 == 0o755


def test_upper_layer_has_only_what_is_new(tmp_path: Path) -> None:
    """Files of the layer below are not copied again."""
    for name in ("old", "new"):
        (tmp_path / name).write_text(name)
    lower = Root(tmp_path / "lower")
    lower.take(tmp_path / "old")
    upper = Root(tmp_path / "upper", lower=lower.folder)
    for name in ("old", "new"):
        upper.take(tmp_path / name)
    upper.write(tmp_path / "old", "written anew")

    found = [path.name for path in upper.folder.rglob("*") if path.is_file()]
    assert found == ["new"]


def test_program_runs_on_what_was_taken_with_it(tmp_path: Path) -> None:
    """It uses the tree's loader and libraries; ldd names each that it needs."""
    root = Root(tmp_path / "root")
    image_root.take_commands(root, ["cut"])
    image_root.take_linked(root)
    program = Path(str(shutil.which("cut")))
    needed = linked([program])
    (loader,) = [path for path in needed if path.name.startswith("ld-")]
    folders = {str(root.place(path.parent.resolve())) for path in needed}

    start = (root.place(loader.parent.resolve() / loader.name), "--library-path")
    done = subprocess.run(
        [*start, ":".join(folders), root.place(program.resolve()), "-d/", "-f2"],
        input="a/b/c\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "b\n"


def test_command_that_is_nowhere_ends_the_build(tmp_path: Path) -> None:
    """Without one of the commands an image would find no cards."""
    with pytest.raises(SystemExit, match="the build image has no no-such-command"):
        image_root.take_commands(Root(tmp_path), ["no-such-command"])


def ldd_says(folder: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """An `ldd` that says the same of every file."""
    (folder / "ldd").write_text(f"#!/bin/sh\ncat <<END\n{words}END\n")
    (folder / "ldd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_libraries_of_arm64_are_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loader is not in the folder of the libraries; the kernel's vDSO is no file."""
    words = (
        "\tlinux-vdso.so.1 (0x0000ffff8f5f0000)\n"
        "\tlibc.so.6 => /lib/aarch64-linux-gnu/libc.so.6 (0x0000ffff8f3c0000)\n"
        "\t/lib/ld-linux-aarch64.so.1 (0x0000ffff8f5b3000)\n"
    )
    ldd_says(tmp_path, monkeypatch, words)
    expected = {Path("/lib/aarch64-linux-gnu/libc.so.6"), Path("/lib/ld-linux-aarch64.so.1")}
    assert linked([tmp_path]) == expected


def test_missing_library_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it."""
    ldd_says(tmp_path, monkeypatch, "\tlibgone.so.1 => not found\n")
    with pytest.raises(SystemExit, match=r"not in the build image: libgone\.so\.1"):
        linked([tmp_path])


def test_standard_library_is_left_its_needless_parts(tmp_path: Path) -> None:
    """The image has no tests, terminals, databases, installers or old bytecode of it."""
    wanted = {"ssl.py", "unittest/case.py", "lib-dynload/_ssl.cpython-313-x86_64-linux-gnu.so"}
    needless = {
        *("test/test_ssl.py", "json/__pycache__/decoder.cpython-313.pyc", "idlelib/run.py"),
        *("ensurepip/_bundled/pip.whl", "site-packages/pip/main.py", "sqlite3/dbapi2.py"),
        *("config-3.13-x86_64-linux-gnu/Makefile", "lib-dynload/_testcapi.cpython-313.so"),
        *("lib-dynload/_curses.cpython-313.so", "lib-dynload/xxlimited.cpython-313.so"),
    }
    for name in wanted | needless:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert {str(path.relative_to(tmp_path)) for path in standard_library(tmp_path)} == wanted
