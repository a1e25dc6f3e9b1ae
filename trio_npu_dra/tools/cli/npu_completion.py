"""`kubectl_complete-npu`: kubectl asks it for candidates when a shell completes `kubectl npu`.

kubectl gives it the words behind `npu`, of which the last is not finished, and may be empty. It
prints a line for each candidate, with a tab and a description, and at last `:` and a number, which
tells the shell what else to do: https://github.com/spf13/cobra, ShellCompDirective.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from shlex import quote
from typing import Any, Final, TypeVar

import trio
from argcomplete.completers import BaseCompleter

from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import KubeObject, ResourceClaim
from trio_npu_dra.kit.api.pods import PodMetadata
from trio_npu_dra.kit.base.errors import DriverError
from trio_npu_dra.tools import kubectl
from trio_npu_dra.tools.cli import kubectl_npu
from trio_npu_dra.tools.cli.completion import candidates
from trio_npu_dra.tools.cluster.objects import AnySlice

_FILES: Final = 0
_NO_FILES: Final = 4
_PATIENCE_SECONDS: Final = 2.0
"""Of a person who has pressed a key, for all that is asked."""


class _ClaimMetadata(ResourceClaim):
    metadata_only = True


_KINDS: Final[dict[str, type[KubeObject]]] = {"pod": PodMetadata, "claim": _ClaimMetadata}
_PAGES: Final[dict[type[KubeObject], int]] = {AnySlice: 25, PodMetadata: 500, _ClaimMetadata: 500}
"""Objects in one answer: what comes within our patience counts, a page as a whole."""

K = TypeVar("K", bound=KubeObject)
Names = AsyncGenerator[tuple[str, str], None]
"""Names, each with what it is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the candidates; without an answer of the API server there are none."""
    words = list(sys.argv[1:] if arguments is None else arguments) or [""]
    values = _OfCluster()
    for word, about in candidates(kubectl_npu.parser(), words, values).items():
        print(word, about, sep="\t")  # noqa: T201 - for a shell, which needs the tab
    print(f":{values.directive}")  # noqa: T201 - so too
    return 0


class _OfCluster(BaseCompleter):
    """The names that the API server tells in time.

    Attributes:
        directive: What else the shell is to do.
    """

    def __init__(self) -> None:
        self.directive = _NO_FILES

    def __call__(
        self, *, prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_more: Any
    ) -> dict[str, str]:
        match action.dest, parsed_args.command:
            case "kubectl", _:
                self.directive = _FILES if action.metavar in {"DIR", "FILE"} else _NO_FILES
            case "namespace", _:
                return trio.run(_in_time, parsed_args, _namespaces)
            case "name", "node":
                return trio.run(_in_time, parsed_args, _nodes)
            case "name", "why-unhealthy":
                return trio.run(_in_time, parsed_args, _devices)
            case "name", "explain":
                kind, slash, _ = prefix.rpartition("/")
                explained = partial(_pods_and_claims, kind=kind, before=kind + slash)
                return trio.run(_in_time, parsed_args, explained)
        return {}


async def _in_time(
    asked: argparse.Namespace, names: Callable[[KubeClient, argparse.Namespace], Names]
) -> dict[str, str]:
    found: dict[str, str] = {}
    with trio.move_on_after(_PATIENCE_SECONDS):
        try:
            async with (
                kubectl.open_cluster(
                    asked, deadline=_PATIENCE_SECONDS, stdin=subprocess.DEVNULL
                ) as client,
                aclosing(names(client, asked)) as told,
            ):
                async for name, about in told:
                    if quote(name) == name:  # else it is meant for the shell, and is no name
                        found.setdefault(name, about)
        except* DriverError:
            pass  # the command says why, when it is run
    return found


async def _namespaces(client: KubeClient, _: argparse.Namespace) -> Names:
    async for claim in _all(client, _ClaimMetadata):
        yield claim.metadata.namespace or "", "it has claims"


async def _nodes(client: KubeClient, asked: argparse.Namespace) -> Names:
    async for each in _slices(client, asked):
        yield each.spec.node_name or "", "node"


async def _devices(client: KubeClient, asked: argparse.Namespace) -> Names:
    async for each in _slices(client, asked):
        for device in each.spec.devices:
            yield f"{each.spec.node_name}/{device.name}", "device"


async def _pods_and_claims(
    client: KubeClient, asked: argparse.Namespace, *, kind: str, before: str
) -> Names:
    namespace = None if asked.all_namespaces else await kubectl.namespace_of(asked)
    for known, model in _KINDS.items():
        if kind in {"", known}:
            async for one in _all(client, model, namespace=namespace):
                yield before + one.metadata.name, known


async def _slices(client: KubeClient, asked: argparse.Namespace) -> AsyncGenerator[AnySlice, None]:
    """The slices of nodes, of the driver that is asked for."""
    async for each in _all(client, AnySlice):
        if each.spec.node_name and asked.driver in {"", each.spec.driver}:
            yield each


async def _all(
    client: KubeClient, kind: type[K], *, namespace: str | None = None
) -> AsyncGenerator[K, None]:
    pages = client.pages(kind, namespace=namespace, page=_PAGES[kind])
    async with aclosing(pages):
        async for page in pages:
            for one in page.objects:
                yield one


if __name__ == "__main__":
    sys.exit(main())
