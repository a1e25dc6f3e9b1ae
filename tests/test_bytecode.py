"""The image's bytecode does what the source says, without what only people read."""

from __future__ import annotations

import marshal
import subprocess
import sys
from pathlib import Path

import pytest

from requirements.bytecode import compile_folder

SOURCE = '''"""A module."""
from __future__ import annotations

class Thing:
    """A class."""

    def name(self) -> Unknown:
        """A method."""

    async def wait(self) -> str:
        """A coroutine."""
        "Another text."
        return "waited"

def check(value: int) -> None:
    """A function."""
    assert value, "no value"
'''
QUESTIONS = """
import asyncio, thing
print(thing.__doc__, thing.check.__doc__, thing.Thing.name.__doc__, thing.Thing.wait.__doc__)
print(thing.Thing.__doc__, thing.Thing().name(), asyncio.run(thing.Thing().wait()))
print(thing.check.__code__.co_firstlineno)
thing.check(0)
"""


def test_functions_lose_docstrings_and_keep_asserts(tmp_path: Path) -> None:
    """Classes keep their docstrings, and lines their numbers."""
    (tmp_path / "thing.py").write_text(SOURCE)
    compile_folder(tmp_path, tmp_path)

    asked = subprocess.run(
        [sys.executable, "-B", "-c", QUESTIONS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.stdout.splitlines() == [
        "None None None None",
        "A class. None waited",
        "15",
    ]
    assert "AssertionError: no value" in asked.stderr


def test_bytecode_is_not_compared_with_its_source(tmp_path: Path) -> None:
    """A start reads no source: nothing in an image changes."""
    module = tmp_path / "thing.py"
    module.write_text("print('compiled')")
    compile_folder(tmp_path, tmp_path)
    module.write_text("print('changed since')")
    command = [sys.executable, "-B", "-c", "import thing"]
    assert subprocess.check_output(command, cwd=tmp_path, text=True) == "compiled\n"


def test_bytecode_knows_its_place_in_the_image(tmp_path: Path) -> None:
    """Otherwise each start would write the file's name into all code again."""
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/thing.py").write_text("")
    compile_folder(tmp_path / "opt", tmp_path)
    (place,) = tmp_path.rglob("*.pyc")
    code = marshal.loads(place.read_bytes()[16:])  # noqa: S302 - it was written just now
    assert code.co_filename == "/opt/thing.py"


def test_a_file_that_does_not_compile_ends_the_build(tmp_path: Path) -> None:
    """The message names the file."""
    (tmp_path / "broken.py").write_text("def")
    with pytest.raises(SystemExit, match=r"broken\.py does not compile: "):
        compile_folder(tmp_path, tmp_path)
