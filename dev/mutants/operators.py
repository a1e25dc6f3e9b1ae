"""Small faults to put into a function, one at a time: mistakes that a person could make.

Made on the syntax tree, so that each parses. Texts stay as they are (docstrings, log lines,
messages of errors), and so do annotations and assertions.
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_FUNCTIONS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Change:
    """One child of a node, replaced.

    Attributes:
        parent: The node.
        field: Its field with the child.
        index: Its index in the field, if that is a list.
        by: The replacement; None removes an element from its list.
        lines: The lines that only tests which see the difference can run.
    """

    parent: ast.AST
    field: str
    index: int | None
    by: ast.AST | Sequence[ast.stmt] | None
    lines: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A module with one fault.

    Attributes:
        function: Qualified name of the function that differs, or the name of a constant.
        line: Where the fault is.
        lines: The lines that only tests which see the fault can run.
        before: The lines of the function that differ, on one line.
        after: The same lines with the fault.
        number: Tells apart mutants of one function that look alike.
        source: The whole module with the fault.
    """

    function: str
    line: int
    lines: frozenset[int]
    before: str
    after: str
    number: int
    source: ast.Module

    @property
    def key(self) -> str:
        """Names the mutant as long as its function does not change."""
        return f"{self.function} | {self.before} | {self.after} | {self.number}"


def mutants(text: str) -> Iterator[Mutant]:
    """All mutants of a module; use each before you ask for the next one."""
    tree = ast.parse(text)
    alike: Counter[tuple[str, str, str]] = Counter()
    for name, target in _targets(tree):
        plain = ast.unparse(target)
        for change in _changes(target):
            undo = _apply(change)
            before, after = _difference(plain, ast.unparse(target))
            alike[name, before, after] += 1
            yield Mutant(
                function=name,
                line=change.lines.start,
                lines=frozenset(change.lines),
                before=before,
                after=after,
                number=alike[name, before, after],
                source=ast.fix_missing_locations(tree),
            )
            setattr(change.parent, change.field, undo)


def _targets(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Functions and methods by qualified name, and constants that are numbers."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _targets(node, f"{prefix}{node.name}.")
        elif not prefix and (name := constant_name(node)) is not None:
            yield name, node


def constant_name(node: ast.stmt) -> str | None:
    """The name, if the statement assigns a number to one."""
    match node:
        case (
            ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() | float()))
            | ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float()))
        ):
            return name
    return None


def _apply(change: Change) -> Any:
    """Make the change; returns what the field was."""
    old = getattr(change.parent, change.field)
    new: Any = change.by
    if change.index is not None:
        new = [*old]
        new[change.index : change.index + 1] = [] if change.by is None else [change.by]
    setattr(change.parent, change.field, new)
    return old


def _difference(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, each side on one line."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))
    sides = ([line[1:].strip() for line in lines[2:] if line[0] == sign] for sign in "-+")
    removed, added = sides
    return " ⏎ ".join(removed), " ⏎ ".join(added)


# --- what is changed -----------------------------------------------------------------------------


def _changes(target: ast.stmt) -> Iterator[Change]:
    if isinstance(target, ast.Assign | ast.AnnAssign):
        assert isinstance(target.value, ast.Constant)
        yield _replaced(target, "value", None, _other_value(target.value), target.value)
        return
    assert isinstance(target, ast.FunctionDef | ast.AsyncFunctionDef)
    for node in target.body:
        yield from _walk(target, "body", target.body.index(node), node)


def _walk(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> Iterator[Change]:
    if _is_left_alone(node):
        return
    for by in _instead_of(node):
        yield _replaced(parent, field, index, by, node)
    yield from _parts(node)
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        if isinstance(node, ast.Raise) and name != "exc":
            continue
        for number, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST):
                yield from _walk(node, name, number if isinstance(value, list) else None, child)


def _replaced(
    parent: ast.AST, field: str, index: int | None, by: ast.AST | None, old: ast.AST
) -> Change:
    if isinstance(by, ast.expr | ast.stmt):
        ast.copy_location(by, old)
    lines = _lines(old)
    return Change(parent, field, index, by, lines)


def _lines(node: ast.AST) -> range:
    """The lines of a node; for a block those of its head."""
    line = getattr(node, "lineno", 0)
    last = line if isinstance(getattr(node, "body", None), list) else getattr(node, "end_lineno", 0)
    return range(line, last + 1)


def _is_left_alone(node: ast.AST) -> bool:
    """Texts, log lines, assertions, and the points at which other tests kill the daemon."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Assert() | ast.JoinedStr():
            return True
        case ast.Call() | ast.Expr(value=ast.Call()):
            call = node.value if isinstance(node, ast.Expr) else node
            assert isinstance(call, ast.Call)
            return ast.unparse(call.func).split(".")[0] == "log"
    return False


def _instead_of(node: ast.AST) -> Iterator[ast.AST]:
    """The replacements of a node."""
    match node:
        case ast.stmt():
            yield from _instead_of_statement(node)
        case ast.BoolOp(values=values):
            for dropped in values:
                rest = [value for value in values if value is not dropped]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op=node.op, values=rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Compare(ops=[sign]) if type(sign) in _COMPARISONS:
            other = _COMPARISONS[type(sign)]()
            yield ast.Compare(left=node.left, ops=[other], comparators=node.comparators)
        case ast.BinOp(op=operation) if type(operation) in _ARITHMETIC:
            opposite = _ARITHMETIC[type(operation)]()
            yield ast.BinOp(left=node.left, op=opposite, right=node.right)
        case ast.Constant(value=bool() | int() | float()):
            yield _other_value(node)
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
            function = ast.Name(id=_FUNCTIONS[name], ctx=ast.Load())
            yield ast.Call(func=function, args=node.args, keywords=node.keywords)


def _instead_of_statement(node: ast.stmt) -> Iterator[ast.stmt]:
    match node:
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            pass
        case ast.Return(value=value):
            if not _is_none(value):
                yield ast.Return(value=ast.Constant(None))
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Expr() | ast.Raise() | ast.Break() | ast.Continue() | ast.Delete():
            yield ast.Pass()
        case ast.AugAssign():
            yield ast.Pass()


def _parts(node: ast.AST) -> Iterator[Change]:
    """The changes that remove parts of a node, or reverse its decision."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            for value in (True, False):
                yield _replaced(node, "test", None, ast.Constant(value), test)
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield _replaced(node, "test", None, ast.Constant(value=False), test)
        case ast.For(iter=items):
            yield _replaced(node, "iter", None, ast.Tuple(elts=[], ctx=ast.Load()), items)
        case ast.comprehension() | ast.Call():
            yield from _without_parts(node)
        case ast.With(items=contexts) | ast.AsyncWith(items=contexts):
            yield from _without_items(node, contexts)
        case ast.ExceptHandler() | ast.Try():
            yield from _unhandled(node)


def _without_parts(node: ast.comprehension | ast.Call) -> Iterator[Change]:
    """The node without a condition, or a keyword argument."""
    match node:
        case ast.comprehension(ifs=conditions):
            for number, condition in enumerate(conditions):
                yield _replaced(node, "ifs", number, None, condition)
        case ast.Call(keywords=keywords) if not _is_error(node):
            for number, keyword in enumerate(keywords):
                if keyword.arg is not None:
                    yield Change(node, "keywords", number, None, _lines(keyword.value))


def _unhandled(node: ast.ExceptHandler | ast.Try) -> Iterator[Change]:
    """The node without an error handler, or without its `finally`."""
    match node:
        case ast.ExceptHandler(body=[ast.Raise(exc=None)]):
            pass
        case ast.ExceptHandler(body=[first, *_] as body):
            lines = range(first.lineno, (body[-1].end_lineno or 0) + 1)
            raises = ast.copy_location(ast.Raise(exc=None, cause=None), first)
            yield Change(node, "body", None, [raises], lines)
        case ast.Try(finalbody=[first, *_]):
            nothing = ast.copy_location(ast.Pass(), first)
            yield Change(node, "finalbody", None, [nothing], _lines(first))


def _without_items(node: ast.With | ast.AsyncWith, items: list[ast.withitem]) -> Iterator[Change]:
    """The node without each context that the block does not refer to."""
    for number, item in enumerate(items):
        if item.optional_vars is not None:
            continue
        lines = _lines(item.context_expr)
        if len(items) > 1:
            yield Change(node, "items", number, None, lines)
            continue
        nothing = ast.parse("__import__('contextlib').nullcontext()", mode="eval").body
        for part in ast.walk(nothing):
            ast.copy_location(part, item.context_expr)
        yield Change(item, "context_expr", None, nothing, lines)


def _is_error(call: ast.Call) -> bool:
    """Whether it makes an exception, by its name."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name.endswith(("Error", "Corrupt", "Held", "Unavailable", "Refusal"))


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _other_value(constant: ast.Constant) -> ast.Constant:
    value = constant.value
    assert isinstance(value, bool | int | float)
    if isinstance(value, bool):
        return ast.copy_location(ast.Constant(not value), constant)
    if isinstance(value, int):
        return ast.copy_location(ast.Constant(value + 1), constant)
    return ast.copy_location(ast.Constant(2 * value or 1.0), constant)
