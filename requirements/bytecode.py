#!/usr/bin/env python3
"""Compile Python files for the image, without what only people read.

Without bytecode the daemon takes a second longer to start. The docstrings of functions and modules
would be 1.8 MiB of its resident memory; classes keep theirs, because dataclasses without one make
one up at each start, and models are described by it. Asserts stay: `python -OO` leaves them out.

usage: bytecode.py FOLDER [ROOT]
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import sys
from itertools import dropwhile
from pathlib import Path
from typing import Final

_UNCHECKED: Final = (1).to_bytes(4, "little")
"""PEP 552: Python does not compare the bytecode with the source. Nothing in an image changes."""


def compile_folder(folder: Path, root: Path) -> None:
    """Compile all files below a folder.

    Args:
        folder: The folder.
        root: The folder that becomes `/`; code has the names of files below that.

    Raises:
        SystemExit: A file does not compile.
    """
    for file in sorted(folder.rglob("*.py")):
        source = file.read_bytes()
        try:
            code = compile(
                without_docstrings(ast.parse(source)),
                Path("/", file.relative_to(root)),
                "exec",
                dont_inherit=True,
                optimize=0,
            )
        except (SyntaxError, ValueError) as error:
            sys.exit(f"{file} does not compile: {error}")
        place = Path(importlib.util.cache_from_source(file, optimization=""))
        place.parent.mkdir(exist_ok=True)
        head = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source)
        place.write_bytes(head + marshal.dumps(code))


def without_docstrings(module: ast.Module) -> ast.Module:
    """The module, changed: without docstrings, except for those of classes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            # All leading texts, because the second would become the docstring.
            node.body = list(dropwhile(_is_text, node.body)) or [ast.Pass()]
    return ast.fix_missing_locations(module)


def _is_text(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Constant(str())):
            return True
    return False


if __name__ == "__main__":
    compile_folder(*map(Path, (*sys.argv[1:], "/")[:2]))
