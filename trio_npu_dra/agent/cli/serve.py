"""`npu-dra serve`: the node agent."""

from __future__ import annotations

import argparse
import faulthandler
import os

import trio

from trio_npu_dra.agent import daemon
from trio_npu_dra.agent.flags import add_flags
from trio_npu_dra.agent.settings import Settings
from trio_npu_dra.kit.base import log_thread, logs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All settings."""
    add_flags(parser, Settings)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    settings = Settings.load(vars(arguments), os.environ)
    logs.configure(settings.log_level, settings.log_format, log_thread.standard_error())
    faulthandler.enable(2)  # of libdcmi.so too, as where it is overwritten while we use it
    trio.run(daemon.run, settings)
    return 0
