"""`npu-dra simulate`: a simulated board in a folder, and how to point the driver at it."""

from __future__ import annotations

import argparse
from pathlib import Path

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.terminal import say
from trio_npu_dra.lab.simulator import create_board, load_profile, of_server, profile_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Profile and folders."""
    parser.add_argument(
        "profile", choices=profile_names(), metavar="PROFILE", help=", ".join(profile_names())
    )
    parser.add_argument(
        "--state", type=Path, required=True, metavar="DIR", help="folder to fill with the board"
    )
    parser.add_argument(
        "--server",
        type=int,
        metavar="N",
        help="which of several servers it is, 0 to 255: gives it addresses and ids of its own",
    )
    parser.add_argument(
        "--super-pod", type=int, metavar="ID", help="its super pod, in which it is server N"
    )
    parser.add_argument(
        "--prebuilt",
        type=Path,
        metavar="DIR",
        help="folder with libdcmi.so and npu-smi, instead of compiling them with cc",
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the board and print where things are."""
    profile = load_profile(arguments.profile)
    if arguments.server is not None:
        profile = of_server(profile, arguments.server, super_pod=arguments.super_pod)
    elif arguments.super_pod is not None:
        raise ConfigError("--super-pod needs --server, the server's number in it")
    board = create_board(profile, arguments.state, prebuilt=arguments.prebuilt)
    npus = ", ".join(f"npu-{device.physical_id}" for device in board.profile.devices)
    say(f"board    {arguments.profile}: {npus}")
    say(f"state    {board.state_file}")
    say(f"library  {board.library}")
    say(f"tool     {board.npu_smi} info")
    say(f"mounts   {board.root}/usr/local/{{Ascend,dcmi,bin/npu-smi}} to the same below /")
    say(f"flags    {' '.join(board.flags())}")
    return 0
