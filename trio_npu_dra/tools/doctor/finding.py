"""What an examination says: a level, what was found, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found.

    Attributes:
        level: How bad it is. A *problem* keeps pods from their NPUs, or lets two of them get one;
            a *warning* may do so later, or is worth knowing.
        text: What it is.
        action: What to do, in one sentence; empty for nothing.
    """

    level: Level
    text: str
    action: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """All that was found about one subject; one finding at least."""

    name: str
    findings: tuple[Finding, ...]


def ok(text: str) -> Finding:
    """All is well."""
    return Finding(level=Level.OK, text=text)


def warning(text: str, action: str) -> Finding:
    """Something may go wrong later, or is worth knowing."""
    return Finding(level=Level.WARNING, text=text, action=action)


def problem(text: str, action: str) -> Finding:
    """Pods do not get their NPUs, or two of them may get one."""
    return Finding(level=Level.PROBLEM, text=text, action=action)


def not_checked(text: str, action: str = "") -> Finding:
    """It cannot be seen from here."""
    return Finding(level=Level.NOT_CHECKED, text=text, action=action)
