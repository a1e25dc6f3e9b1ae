"""The hook's program is whole, and there as long as something names it."""

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests import foreign
from tests.claims.node import DRIVER, NodeOnDisk
from tests.full_disk import no_file_beyond
from tests.holds.entries import held
from trio_npu_dra.agent.claims.repair import Repair
from trio_npu_dra.agent.handout.cdi import CdiFolder, Libraries
from trio_npu_dra.agent.handout.library_hook import LibraryHook, installed_hook
from trio_npu_dra.kit.base.errors import StorageError


@pytest.fixture
def hooks(node: NodeOnDisk) -> tuple[LibraryHook, LibraryHook]:
    """Two versions."""
    old, new = (made(node, content) for content in (b"old", b"new"))
    return old, new


def made(node: NodeOnDisk, content: bytes = b"") -> LibraryHook:
    """A version with this program, not installed yet."""
    program = node.root / f"program-{content.decode()}"
    program.write_bytes(content)
    return LibraryHook(node.cdi_root, DRIVER, program)


def with_hook(node: NodeOnDisk, hook: LibraryHook | None) -> CdiFolder:
    """The CDI files of an instance with this program."""
    return replace(node.cdi(), libraries=Libraries(path="/a:/b:", hook=hook))


def test_a_spec_names_program_and_folders(node: NodeOnDisk) -> None:
    """And the image's LD_LIBRARY_PATH stays: there is none in the spec."""
    hook = made(node)
    edits = with_hook(node, hook).render("uid-a", [held("npu-0", 0)])["containerEdits"]
    assert edits["env"] == ["ASCEND_VISIBLE_DEVICES=void"]
    assert edits["hooks"] == [
        {
            "hookName": "createContainer",
            "path": f"{node.cdi_root}/npu.huawei.com-libraries-e3b0c44298fc1c14",
            "args": ["npu-dra-libraries", "/a", "/b"],
            "env": ["PATH=/usr/sbin:/sbin"],
            "timeout": 60,
        }
    ]


def test_without_folders_there_is_no_hook(node: NodeOnDisk) -> None:
    """It would have nothing to do."""
    hook = made(node)
    cdi = replace(node.cdi(), libraries=Libraries(path="", hook=hook))
    assert "hooks" not in cdi.render("uid-a", [held("npu-0", 0)])["containerEdits"]


def test_program_is_installed_for_all_to_execute(
    hooks: tuple[LibraryHook, LibraryHook], node: NodeOnDisk
) -> None:
    """Into a folder that is made; a second time changes nothing; each version has its own name."""
    for hook in hooks:
        hook.install()
        first = hook.path.stat()
        hook.install()
        assert hook.path.stat() == first
        assert first.st_mode & 0o7777 == 0o711
    assert {path.read_bytes() for path in node.cdi_root.iterdir()} == {b"old", b"new"}


def test_lost_and_damaged_programs_are_written_again(
    hooks: tuple[LibraryHook, LibraryHook],
) -> None:
    """By the next look."""
    hook, _ = hooks
    hook.install()
    hook.path.unlink()
    hook.install()
    hook.path.chmod(0o644)
    hook.install()
    assert hook.path.read_bytes() == b"old"
    assert hook.path.stat().st_mode & 0o7777 == 0o711

    hook.path.write_bytes(b"odd")
    hook.install()
    assert hook.path.read_bytes() == b"old"


@pytest.mark.parametrize("kind", foreign.KINDS)
def test_a_foreign_object_is_replaced(
    hooks: tuple[LibraryHook, LibraryHook], kind: str, node: NodeOnDisk
) -> None:
    """A link is not followed."""
    hook, _ = hooks
    node.cdi_root.mkdir()
    foreign.put(kind, hook.path)
    hook.install()
    assert hook.path.read_bytes() == b"old"
    assert not hook.path.is_symlink()
    if kind == "link":
        assert foreign.victim(hook.path).read_text() == "secret"


async def test_a_program_stays_while_anything_names_it(
    hooks: tuple[LibraryHook, LibraryHook], node: NodeOnDisk
) -> None:
    """A record or a CDI file, though its version is gone."""
    old, new = hooks
    old.install()
    cdi = with_hook(node, new)
    spec = with_hook(node, old).render("uid-a", [held("npu-0", 0)])

    cdi.remove_unused_hooks([None, spec])
    assert old.path.exists()
    cdi.write("uid-a", spec)
    cdi.remove_unused_hooks([])
    assert old.path.exists()
    cdi.remove("uid-a")
    cdi.remove_unused_hooks([])
    assert not old.path.exists()


@pytest.mark.parametrize("has_hook", [True, False])
async def test_repair_installs_and_removes(
    hooks: tuple[LibraryHook, LibraryHook], node: NodeOnDisk, *, has_hook: bool
) -> None:
    """A look brings a lost program back; an update or another setting leaves no unused one."""
    old, new = hooks
    old.install()
    repair = Repair(node.ledger(), with_hook(node, new if has_hook else None))
    for is_first in (True, False):
        new.path.unlink(missing_ok=True)
        await repair.reconcile(is_first=is_first)
        assert not old.path.exists()
        assert new.path.exists() == has_hook


def test_a_full_disk_is_said(hooks: tuple[LibraryHook, LibraryHook]) -> None:
    """And nothing is left."""
    hook, _ = hooks
    with no_file_beyond(1), pytest.raises(StorageError, match=r"cannot write .*/cdi/npu"):
        hook.install()
    assert [*hook.path.parent.iterdir()] == []


def test_a_folder_that_is_none_is_said(hooks: tuple[LibraryHook, LibraryHook]) -> None:
    """At the first look and at later ones."""
    hook, _ = hooks
    root = hook.path.parent
    root.write_text("")
    with pytest.raises(StorageError, match=r"cannot make .*/cdi"):
        hook.install()
    root.unlink()
    hook.install()
    hook.path.unlink()
    root.rmdir()
    root.write_text("")
    with pytest.raises(StorageError, match=r"cannot make .*/cdi"):
        hook.install()


def test_a_noexec_folder_is_said(
    hooks: tuple[LibraryHook, LibraryHook], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers would not start; the text says what to do."""
    found = os.statvfs("/")
    flags = [*found[:8], found.f_flag | os.ST_NOEXEC, found.f_namemax]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(flags))
    with pytest.raises(StorageError, match=r"mounted noexec.*--container-libraries=env"):
        hooks[0].install()


def test_an_installation_without_the_program_says_so(
    node: NodeOnDisk, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Only the image has it; the caller does with LD_LIBRARY_PATH then."""
    with caplog.at_level(logging.WARNING):
        assert installed_hook(node.cdi_root, DRIVER, tmp_path / "missing") is None
    assert "containers get LD_LIBRARY_PATH" in caplog.text

    program = tmp_path / "program"
    program.write_bytes(b"it")
    hook = installed_hook(node.cdi_root, DRIVER, program)
    assert hook is not None
    assert hook.path.read_bytes() == b"it"
