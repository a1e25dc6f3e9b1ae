"""Each house and room has a face: what it is for, and what others may import."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import trio_npu_dra

ROOT = Path(trio_npu_dra.__file__).parent
HOUSES = ("agent", "ascend", "kit", "lab", "tools")
ROOMS = sorted(
    str(face.parent.relative_to(ROOT)).replace("/", ".")
    for house in HOUSES
    for face in (ROOT / house).rglob("__init__.py")
    if "_generated" not in face.parts
)


def face_of(room: str) -> tuple[str, set[str]]:
    """What the room's face says it is for, and the names that it gives."""
    tree = ast.parse((ROOT / room.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    given: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            given = set(ast.literal_eval(node.value))
    return ast.get_docstring(tree) or "", given


@cache
def imports() -> list[tuple[Path, list[str]]]:
    """Each import within the package: the file, and the dotted name that it takes."""
    return [
        (path, f"{node.module}.{alias.name}".split(".")[1:])
        for path in ROOT.rglob("*.py")
        if "_generated" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trio_npu_dra.")
        for alias in node.names
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_a_face_says_what_the_room_is_for(room: str) -> None:
    """In its docstring; `__all__` has what others import."""
    words, given = face_of(room)
    assert words
    if room.endswith("cli"):
        return  # commands: nothing imports from them
    assert given


@pytest.mark.parametrize("room", ROOMS)
def test_others_import_what_the_face_gives(room: str) -> None:
    """Names of the face, or modules that it lists."""
    _, given = face_of(room)
    parts = room.split(".")
    past_the_face = {
        f"{path.relative_to(ROOT)}: {'.'.join(taken)}"
        for path, taken in imports()
        if taken[: len(parts)] == parts and not given.issuperset(taken[len(parts) :][:1])
        if ROOT.joinpath(*parts) not in path.parents
    }
    assert past_the_face == set()
