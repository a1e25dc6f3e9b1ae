"""`npu-dra ranktable`: the rank table of a job, or the variables for its launchers, from claims."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import trio

from trio_npu_dra.kit.base import logs, storage
from trio_npu_dra.kit.base.errors import ConfigError, DriverError, Invalid
from trio_npu_dra.kit.base.terminal import say
from trio_npu_dra.tools import kubectl
from trio_npu_dra.tools.cli import table as columns
from trio_npu_dra.tools.ranktable.job import find_job, read_members
from trio_npu_dra.tools.ranktable.members import Gathered, Member, portless
from trio_npu_dra.tools.ranktable.tables import Wire, form_of, make_table, ranks_of, together

_TIMEOUT: Final = 600
_WHO_NEEDS_ONE: Final = (
    "torchrun and msrun need no rank table: their processes find each other by the variables of "
    "-o env; PyTorch takes one in RANK_TABLE_FILE, which saves large jobs time"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job, where it is, what is wanted of it, and how long that may take."""
    parser.add_argument(
        "job",
        metavar="JOB",
        help="job/NAME, jobset/NAME, lws/NAME, statefulset/NAME, or a selector of its pods' labels",
    )
    parser.add_argument(
        "-n", "--namespace", default="", help="of the job (default: that of the context or pod)"
    )
    parser.add_argument(
        "--pods",
        type=_positive,
        metavar="N",
        help="how many pods the job has, where a selector of labels does not tell",
    )
    parser.add_argument(
        "--wait", action="store_true", help="until all pods of the job have their NPUs"
    )
    parser.add_argument(
        "--timeout",
        type=_positive,
        metavar="SECONDS",
        help=f"how long to wait at most; it then says which pod lacks what (default: {_TIMEOUT})",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("json", "env"),
        default="json",
        help="json: the rank table; env: variables for the launcher of this pod's processes, which "
        "knows itself by $POD_NAME, else by its host name (default: json)",
    )
    parser.add_argument(
        "--framework",
        choices=tuple(Framework),
        help="whose variables; PyTorch needs these alone, and no rank table (default: pytorch)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write them there instead of standard output, whole or not at all; of a rank table "
        "HCCL demands the ending .json",
    )
    parser.add_argument(
        "--keep-order",
        action="store_true",
        help="fail rather than give ranks in another order than that of the pods' index",
    )
    parser.add_argument(
        "--super-pod-block",
        type=_positive,
        metavar="N",
        help="A3: cut super pods into logical ones of N ranks",
    )
    parser.add_argument(
        "--explain", action="store_true", help="say on standard error how ranks are given"
    )
    kubectl.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make what is asked for and print or write it."""
    logs.configure("warning", "text")
    _check_flags(arguments)
    if arguments.out is not None:
        _check_file(arguments.out, arguments.output)
    own = os.environ.get("POD_NAME") or socket.gethostname().partition(".")[0]
    found = trio.run(_read, arguments, own)
    _refuse_lacks(found, arguments)
    members = _in_order(found.members, keep=arguments.keep_order)
    _warn(trouble for member in members for trouble in member.troubles)
    if (flaw := portless(members)) and arguments.output != "env":
        raise DriverError(flaw)
    _warn([flaw] if flaw else ())
    if arguments.output == "env":
        if arguments.explain:
            say(*_explanation(members), stream=sys.stderr)
        framework = Framework(arguments.framework or Framework.PYTORCH)
        given = variables(members, _own(members, own), framework)
        lines = [f"{name}='{value}'" for name, value in given.items()]
    else:
        lines = json.dumps(_table(members, arguments), indent=2).splitlines()
    if arguments.out is None:
        say(*lines)
    else:
        content = "".join(f"{line}\n" for line in lines)
        storage.write_atomic(arguments.out, content.encode(), mode=0o644)
        say(f"{arguments.out} is for {len(members)} pods", stream=sys.stderr)
    return 0


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _check_flags(asked: argparse.Namespace) -> None:
    """Refuse a flag that would do nothing.

    Raises:
        ConfigError: There is one.
    """
    is_env = asked.output == "env"
    for name, value, has_effect, why in (
        ("timeout", asked.timeout, asked.wait, "without --wait"),
        ("framework", asked.framework, is_env, "without -o env"),
        ("super-pod-block", asked.super_pod_block, not is_env, "with -o env"),
    ):
        if value is not None and not has_effect:
            raise ConfigError(f"--{name}={value}: has no effect {why}")


def _check_file(path: Path, form: str) -> None:
    """Refuse a place before any waiting.

    Raises:
        ConfigError: Nobody could read a rank table there.
    """
    if form == "json" and path.suffix != ".json":
        raise ConfigError(f"--out={path}: HCCL reads a rank table only if its name ends in .json")
    if not os.access(f"{path.parent}/.", os.W_OK | os.X_OK, effective_ids=True):
        raise ConfigError(f"--out={path}: {path.parent} is no folder in which you may write")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ConfigError(f"--out={path}: a link, folder or device is there: name a file")


async def _read(asked: argparse.Namespace, own: str) -> Gathered:
    async with kubectl.open_cluster(asked) as client:
        try:
            namespace = await kubectl.namespace_of(asked)
            job = await find_job(client, asked.job, namespace, asked.pods)
            if asked.wait and job.is_of_any_size:
                raise ConfigError(f"--wait: give --pods N, because {asked.job} does not tell it")
            wait = (asked.timeout or _TIMEOUT) if asked.wait else None
            return await read_members(client, job, own, wait=wait)
        except Invalid as error:  # nothing can have such a name, or there is no such selector
            raise ConfigError(str(error)) from error


def _refuse_lacks(found: Gathered, asked: argparse.Namespace) -> None:
    if found.lacks:
        say(*found.lacks, stream=sys.stderr)
        waited = f"after {asked.timeout or _TIMEOUT} s"
        when = waited if asked.wait else "yet; --wait waits for it"
        raise DriverError(f"{asked.job} is not complete {when}")


def _in_order(members: Sequence[Member], *, keep: bool) -> Sequence[Member]:
    """The members in the order of their ranks.

    Raises:
        DriverError: It is another one than that of their index, which was to be kept.
    """
    moved = together(members)
    if moved == tuple(members):
        return members
    names = ", ".join(member.pod for member in moved)
    if keep:
        raise DriverError(
            "--keep-order: by index, pods of a node or of a super pod are apart; without the flag "
            f"the order is {names}"
        )
    say(
        f"NODE_RANK is not the index: pods of a node and of a super pod are together: {names}",
        stream=sys.stderr,
    )
    return moved


def _own(members: Iterable[Member], own: str) -> Member:
    for member in members:
        if own in member.names:
            return member
    raise ConfigError(
        f"-o env is for one pod, and no pod of the job with NPUs is called {own}: "
        "set POD_NAME to the name of one (in a pod: from its field metadata.name)"
    )


def _table(members: Sequence[Member], asked: argparse.Namespace) -> Wire:
    """The job's table.

    Raises:
        DriverError: HCCL would refuse it.
    """
    ranks = ranks_of(members)
    form = form_of(ranks)
    if asked.explain:
        say(f"form {form.version}: {form.reason}", *_explanation(members), stream=sys.stderr)
    return make_table(ranks, form, block=asked.super_pod_block)


def _warn(doubts: Iterable[str]) -> None:
    say(*(f"warning: {doubt}" for doubt in doubts), stream=sys.stderr)


def _explanation(members: Sequence[Member]) -> Iterator[str]:
    rows = [("NODE_RANK", "POD", "NODE", "SUPER POD", "RANKS", "NPUS")]
    first = 0
    for number, member in enumerate(members):
        last = first + len(member.npus) - 1
        npus = ",".join(str(npu.physical_id) for npu in member.npus)
        pod = "-" if member.super_pod is None else str(member.super_pod)
        rows.append((str(number), member.pod, member.node, pod, f"{first}-{last}", npus))
        first = last + 1
    yield from columns.lines(rows)
    yield _WHO_NEEDS_ONE


class Framework(StrEnum):
    """Whose variables they are."""

    PYTORCH = "pytorch"
    MINDSPORE = "mindspore"


def variables(members: Sequence[Member], own: Member, framework: Framework) -> dict[str, str]:
    """The variables for the pod *own*: those of torchrun, or of MindSpore's msrun.

    The first pod is the master. The ports are the usual ones of both.
    """
    master = members[0].address
    nodes, rank, local = len(members), members.index(own), len(own.npus)
    world = sum(len(member.npus) for member in members)
    if framework is Framework.MINDSPORE:
        found = {
            "MS_SCHED_HOST": master,
            "MS_SCHED_PORT": 8118,
            "MS_WORKER_NUM": world,
            "MS_LOCAL_WORKER": local,
            "MS_NODE_RANK": rank,
        }
    else:
        found = {
            "MASTER_ADDR": master,
            "MASTER_PORT": 29500,
            "NNODES": nodes,
            "NODE_RANK": rank,
            "NPROC_PER_NODE": local,
            "WORLD_SIZE": world,
        }
    return {name: str(value) for name, value in found.items()}
