"""The pages of docs/reference that are made from the code: `just generated` writes them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import trio_npu_dra
from dev.site import words
from trio_npu_dra.agent.cli import main
from trio_npu_dra.agent.devices.taints import NETWORK, UNMONITORED, TaintPolicy
from trio_npu_dra.agent.flags import Flag, flags
from trio_npu_dra.agent.report.news import Reason
from trio_npu_dra.agent.settings import MeetingSettings, NodeSettings, PluginSettings, Settings
from trio_npu_dra.ascend.faults import packaged_table
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.kit.base import errors
from trio_npu_dra.kit.base.terminal import ExitCode

DRIVER: Final = "npu.huawei.com"
_OF_OTHERS: Final[Mapping[str, type[PluginSettings]]] = {
    "doctor": MeetingSettings,
    "health": PluginSettings,
    "inspect": NodeSettings,
}
_MADE: Final = "<!-- Made by `just generated` from the code: change it there. -->\n\n"


def flags_page() -> str:
    """Commands, and the flags of the node agent with their variables and defaults."""
    commands = _table(
        ("command", "does"), ((f"`npu-dra {name}`", text) for name, text in main.COMMANDS.items())
    )
    groups: dict[str, list[str]] = {}
    for field, each in flags(Settings):
        groups.setdefault(each.group, []).append(_about(field, each))
    given = "".join(
        f"### {group.capitalize()}\n\n{''.join(sorted(parts))}" for group, parts in groups.items()
    )
    parts = [
        f"- `npu-dra {command}` takes of these {', '.join(sorted(names))}.\n"
        for command, settings in _OF_OTHERS.items()
        for names in [[f"`{each.name}`" for _, each in flags(settings)]]
    ]
    return (
        f"# Commands and flags\n\n{_MADE}{commands}\n"
        f"`npu-dra COMMAND --help` lists the flags of a command.\n\n{words.COMPLETION}\n"
        "## Exit codes\n\nOf all commands, and of `kubectl npu`:\n\n"
        f"{_table(('code', 'means'), ((str(code), code.meaning) for code in ExitCode))}\n"
        f"{words.EXIT_CODES}\n"
        "## The node agent\n\n"
        "The image's entrypoint is `npu-dra serve`: the DaemonSet passes bare flags. A flag wins "
        f"over its variable, the variable over the default.\n\n{given}"
        "## The other commands\n\nThey read the same variables; in the agent's pod these say where "
        "the host's folders are. Give\nthem the flags that the agent was given:\n\n"
        f"{''.join(parts)}"
    )


def taints_page() -> str:
    """Fault levels, what they mean, and what they do to pods by default."""
    effects = TaintPolicy(domain=DRIVER).effects
    codes = Counter(packaged_table().levels.values())
    levels = (
        (
            f"`{level}`",
            words.LEVELS[level],
            str(codes[level]) if codes[level] else "-",
            "Unhealthy" if level.is_unhealthy else "Healthy",
            f"`{effects[level]}`" if level in effects else "no taint",
        )
        for level in FaultLevel
    )
    states = (
        (f"`{state}`", words.STATES[state], f"`{DRIVER}/{state.lower()}`", f"`{effects[state]}`")
        for state in (UNMONITORED, NETWORK)
    )
    head = ("level", "means", "codes", "health in pods' status", "effect by default")
    return (
        f"# Fault levels and taints\n\n{_MADE}{words.TAINTS_HEAD}\n{_table(head, levels)}\n"
        f"{words.TAINTS_STATES}\n"
        f"{_table(('state', 'means', 'key of the taint', 'effect by default'), states)}\n"
        f"{words.TAINTS_TAIL}"
    )


def events_page() -> str:
    """Each reason of an Event, with an example that the code made."""
    parts = [f"# Events\n\n{_MADE}{words.EVENTS_HEAD}"]
    for reason in Reason:
        kind = "Normal" if reason.is_normal else "Warning"
        said = words.event_example(reason)
        parts.append(
            f"\n## {reason}\n\n{kind}, on {words.EVENTS[reason].about}. "
            f"{words.EVENTS[reason].text}\n\n```text\n{said}\n```\n"
        )
    return "".join(parts)


def errors_page() -> str:
    """What the driver says when a pod cannot have its NPU, and what to do."""
    shown = list(
        _leaves(
            errors.ClaimError,
            errors.AllocationRefused,
            errors.HostFileMissing,
        )
    )
    raised = _raised({kind.__name__ for kind in shown})
    parts = [f"# Errors\n\n{_MADE}{words.ERRORS_HEAD}"]
    for kind in shown:
        said = raised.get(kind.__name__, [])
        if said:
            rows = "".join(f"- `{line}`\n" for line in said)
            end = (
                "may go by itself: the kubelet asks again"
                if kind.retryable
                else "stays until you act"
            )
            parts.append(f"\n### {_means(kind)}\n\nIt {end}.\n\n{rows}\n")
            parts.append(f"{words.ERRORS[kind.__name__]}\n")
    parts.append(f"\n{words.ERRORS_OF_THE_NODE}\n")
    rows_of_node = ((_means(kind), words.ERRORS[kind.__name__]) for kind in words.OF_THE_NODE)
    parts.append(_table(("what happened", "what to do"), rows_of_node))
    return "".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _about(field: str, shown: Flag) -> str:
    """A flag: what it does, what it takes, its default and variable, and where to read more."""
    if shown.choices:
        takes = ", ".join(f"`{choice}`" for choice in shown.choices)
    else:
        takes = ", ".join(filter(None, (f"`{shown.metavar}`", shown.limits or shown.expected)))
    if shown.default is None:
        default = "Required"
    else:
        default = "Default: " + (f"`{shown.default}`" if shown.default else "none")
    more = f" See {words.FLAGS[field]}." if field in words.FLAGS else ""
    return (
        f"#### `{shown.name}`\n\n{shown.description[0].upper()}{shown.description[1:]}.\n\n"
        f"Takes: {takes}. {default}. Variable: `{shown.variable}`.{more}\n\n"
    )


def _leaves(*roots: type[errors.DriverError]) -> Iterator[type[errors.DriverError]]:
    """The classes and those made of them, in the order of the module."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, roots):
            yield kind


def _means(kind: type[errors.DriverError]) -> str:
    """The first sentence of what is written about an error."""
    text = " ".join((kind.__doc__ or "").split("\n\n", maxsplit=1)[0].split())
    return text.partition("; ")[0].removesuffix(".")


def _raised(names: Collection[str]) -> dict[str, list[str]]:
    """The messages of the errors with these names that the driver of NPUs makes, each once."""
    made = re.compile(rf"\b({'|'.join(names)})\(")
    found: dict[str, dict[str, None]] = {}
    root = Path(trio_npu_dra.__file__).parent
    houses = ("agent", "ascend", "kit")
    for file in (path for house in houses for path in sorted((root / house).rglob("*.py"))):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if made.search(text) else ():
            match node:
                case ast.Call(func=ast.Name(id=name), args=[message, *_]) if name in names:
                    said = _text(message)
                    if said.strip("… ;:"):
                        found.setdefault(name, {})[said] = None
    return {name: list(messages) for name, messages in found.items()}


def _text(message: ast.expr) -> str:
    """A message with a mark for what is put in; empty if it is not written there."""
    match message:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts
            )
            return text.replace("……", "…")
    return ""
