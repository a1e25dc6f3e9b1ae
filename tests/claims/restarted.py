"""Calls of a driver that has just started."""

import logging

import pytest
import trio

from tests.claims.node import AT_ONCE, NodeOnDisk, ref
from trio_npu_dra.agent.claims.repair import keep_cdi_files


async def prepare(node: NodeOnDisk, *names: str) -> dict[str, str]:
    """Prepare claims by a driver that has just started; the errors, by name."""
    answers = await node.start(patience=AT_ONCE).prepare([ref(name) for name in names])
    return {name: answers[f"uid-{name}"].error for name in names}


async def unprepare(node: NodeOnDisk, *names: str) -> dict[str, str]:
    """Unprepare claims by a driver that has just started; the errors, by name."""
    errors = await node.start(patience=AT_ONCE).unprepare([ref(name) for name in names])
    return {name: errors[f"uid-{name}"] for name in names}


async def start(node: NodeOnDisk, nursery: trio.Nursery) -> None:
    """Start the repair of a new instance."""
    await nursery.start(keep_cdi_files, node.ledger(), node.cdi())


def errors_in(log: pytest.LogCaptureFixture) -> list[str]:
    """The problems of all error lines."""
    return [vars(line)["problem"] for line in log.records if line.levelno == logging.ERROR]
